// Importance sampling of the whole response, untruncated but for the bound on the log of the product: unbiased, with
// the variance of a product.
#include "algos/corrections/ratio.h"

namespace motley::algos {
namespace {

class SeqIs final : public RatioRule {
 public:
  Scope scope() const override { return Scope::sequence; }
  void weights(std::span<const DrawnToken> tokens, std::span<double> weights, SampleNumbers&) const override {
    std::fill(weights.begin(), weights.end(), bounded_exp(sum_log_ratios(tokens)));
  }
};

const bool registered = register_correction({
    .name = "seq-is",
    .summary = "importance sampling of the response: the product of its tokens' ratios",
    .formula = "w = W, W = product of r over the response",
    .source = "Liu et al. 2025 (Seq-IS)",
    .parameters = {},
    .ratio_rule = [](const CorrectionParameters&) { return std::make_unique<SeqIs>(); },
});

}  // namespace
}  // namespace motley::algos
