// Masked importance sampling of the whole response: its product of ratios inside a band, nothing outside it.
#include "algos/corrections/ratio.h"

namespace motley::algos {
namespace {

class SeqMis final : public RatioRule {
 public:
  explicit SeqMis(const CorrectionParameters& parameters) : band_(parameters) {}
  Scope scope() const override { return Scope::sequence; }
  void weights(std::span<const DrawnToken> tokens, std::span<double> weights, SampleNumbers&) const override {
    const double log_product = sum_log_ratios(tokens);
    std::fill(weights.begin(), weights.end(), band_.contains(log_product) ? bounded_exp(log_product) : 0.0);
  }

 private:
  RatioBand band_;
};

const bool registered = register_correction({
    .name = "seq-mis",
    .summary = "masked importance sampling of the response: too large a product drops it",
    .formula = "w = W if low <= W <= high, else 0; W = product of r over the response",
    .source = "Liu et al. 2025 (Seq-MIS); high 2 as in verl (TRL: 3)",
    .parameters = {{.name = "low", .default_value = 0.0, .meaning = "lower edge of the band; 0: none"},
                   {.name = "high", .default_value = 2.0, .meaning = "upper edge of the band"}},
    .ratio_rule = [](const CorrectionParameters& parameters) { return std::make_unique<SeqMis>(parameters); },
});

}  // namespace
}  // namespace motley::algos
