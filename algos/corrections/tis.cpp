// Truncated importance sampling: the ratio, capped.
#include "algos/corrections/ratio.h"

namespace motley::algos {
namespace {

class Tis final : public TokenRule {
 public:
  explicit Tis(const CorrectionParameters& parameters)
      : low_(number(parameters, "low")),
        cap_(number(parameters, "cap")),
        log_low_(std::log(low_)),
        log_cap_(std::log(cap_)) {
    if (!(low_ < cap_)) throw std::invalid_argument("tis.low must be below tis.cap");
  }
  TokenWeight weight(double log_p, double log_q, double) const override {
    const double log_ratio = log_p - log_q;
    if (log_ratio > log_cap_) return {.value = std::min(cap_, bounded_exp(log_ratio))};
    if (log_ratio < log_low_) return {.value = low_};
    return TokenWeight::ratio();
  }

 private:
  double low_, cap_, log_low_, log_cap_;
};

const bool registered = register_correction({
    .name = "tis",
    .summary = "truncated importance sampling: the ratio, capped",
    .formula = "w = max(low, min(r, cap))",
    .source = "Yao et al. 2025; cap 2 and no lower bound as in verl, slime and miles",
    .parameters = {cap_parameter(2.0, ""),
                   {.name = "low", .default_value = 0.0, .meaning = "smallest weight; 0: none"}},
    .ratio_rule = [](const CorrectionParameters& parameters) { return std::make_unique<Tis>(parameters); },
});

}  // namespace
}  // namespace motley::algos
