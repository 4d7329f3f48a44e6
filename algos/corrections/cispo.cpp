// CISPO: the ratio's weight is clipped, not the update, so that every token keeps a gradient.
#include "algos/corrections/ratio.h"

namespace motley::algos {
namespace {

class Cispo final : public AnchoredRule {
 public:
  explicit Cispo(const CorrectionParameters& parameters) : AnchoredRule(parameters), cap_(number(parameters, "cap")) {}
  void weights(std::span<const DrawnToken> tokens, std::span<double> weights, SampleNumbers&) const override {
    for (size_t t = 0; t < tokens.size(); ++t) weights[t] = std::min(cap_, bounded_exp(log_u(tokens[t])));
  }

 private:
  double cap_;
};

const bool registered = register_correction({
    .name = "cispo",
    .summary = "clipped weight of p / pi_old: every token keeps its gradient",
    .formula = "w = min(u, cap), u = p / pi_old",
    .source = "arXiv 2506.13585; cap 5 as in ScaleRL, arXiv 2510.13786",
    .parameters = {cap_parameter(5.0, ": the bound itself, 1 + eps of the paper"), Anchor::parameter()},
    .ratio_rule = [](const CorrectionParameters& parameters) { return std::make_unique<Cispo>(parameters); },
});

}  // namespace
}  // namespace motley::algos
