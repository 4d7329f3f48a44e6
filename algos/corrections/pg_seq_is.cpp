// The policy gradient with importance sampling of the response that the FP16 paper trains with: no clip, no extra pass.
#include "algos/corrections/ratio.h"

namespace motley::algos {
namespace {

class PgSeqIs final : public RatioRule {
 public:
  explicit PgSeqIs(const CorrectionParameters& parameters)
      : cap_(number(parameters, "cap")), masks_(text(parameters, "mode") == "mask") {}
  Scope scope() const override { return Scope::sequence; }
  void weights(std::span<const DrawnToken> tokens, std::span<double> weights, SampleNumbers&) const override {
    const double log_product = sum_log_ratios(tokens);
    const bool above = log_product > std::log(cap_);
    const double beyond = masks_ ? 0.0 : std::min(cap_, bounded_exp(log_product));
    std::fill(weights.begin(), weights.end(), above ? beyond : bounded_exp(log_product));
  }

 private:
  double cap_;
  bool masks_;
};

const bool registered = register_correction({
    .name = "pg-seq-is",
    .summary = "policy gradient with importance sampling of the response, truncated or masked at the cap",
    .formula = "w = min(W, cap), or with mode = \"mask\" W if W <= cap, else 0; W = product of r over the response",
    .source = "arXiv 2510.26788",
    .parameters = {cap_parameter(3.0, " (truncate), or the W above which a response is dropped (mask)"),
                   {.name = "mode",
                    .default_value = "truncate",
                    .meaning = "what happens above the cap",
                    .texts = {"truncate", "mask"}}},
    .ratio_rule = [](const CorrectionParameters& parameters) { return std::make_unique<PgSeqIs>(parameters); },
});

}  // namespace
}  // namespace motley::algos
