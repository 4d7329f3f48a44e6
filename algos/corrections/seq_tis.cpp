// Truncated importance sampling of the whole response.
#include "algos/corrections/ratio.h"

namespace motley::algos {
namespace {

class SeqTis final : public RatioRule {
 public:
  explicit SeqTis(const CorrectionParameters& parameters) : cap_(number(parameters, "cap")) {}
  Scope scope() const override { return Scope::sequence; }
  void weights(std::span<const DrawnToken> tokens, std::span<double> weights, SampleNumbers&) const override {
    std::fill(weights.begin(), weights.end(), std::min(cap_, bounded_exp(sum_log_ratios(tokens))));
  }

 private:
  double cap_;
};

const bool registered = register_correction({
    .name = "seq-tis",
    .summary = "truncated importance sampling of the response",
    .formula = "w = min(W, cap), W = product of r over the response",
    .source = "verl rollout_is = \"sequence\"; cap 2 as there (SkyRL: 5)",
    .parameters = {cap_parameter(2.0, "")},
    .ratio_rule = [](const CorrectionParameters& parameters) { return std::make_unique<SeqTis>(parameters); },
});

}  // namespace
}  // namespace motley::algos
