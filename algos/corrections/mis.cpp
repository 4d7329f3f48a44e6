// Masked importance sampling (IcePop): the ratio inside a band, nothing outside it. A masked token still counts in the
// reduction's denominator.
#include "algos/corrections/ratio.h"

namespace motley::algos {
namespace {

class Mis final : public TokenRule {
 public:
  explicit Mis(const CorrectionParameters& parameters) : band_(parameters) {}
  TokenWeight weight(double log_p, double log_q, double) const override {
    return band_.contains(log_p - log_q) ? TokenWeight::ratio() : TokenWeight{};
  }

 private:
  RatioBand band_;
};

const bool registered = register_correction({
    .name = "mis",
    .summary = "masked importance sampling: tokens whose ratio leaves the band give no gradient",
    .formula = "w = r if low <= r <= high, else 0",
    .source = "IcePop, arXiv 2510.18855",
    .parameters = {{.name = "low", .default_value = 0.5, .meaning = "lower edge of the band"},
                   {.name = "high", .default_value = 5.0, .meaning = "upper edge of the band"}},
    .ratio_rule = [](const CorrectionParameters& parameters) { return std::make_unique<Mis>(parameters); },
});

}  // namespace
}  // namespace motley::algos
