// GSPO: PPO's clip on the geometric mean of a response's ratios. Its token form: the gradient of
// min(s A, clip(s) A) is s A times the mean of grad log p over the response, which reduction "sequence_mean" takes.
#include "algos/corrections/ratio.h"

namespace motley::algos {
namespace {

class Gspo final : public AnchoredRule {
 public:
  explicit Gspo(const CorrectionParameters& parameters)
      : AnchoredRule(parameters), clip_(number(parameters, "low"), number(parameters, "high")) {}
  Scope scope() const override { return Scope::sequence; }
  void weights(std::span<const DrawnToken> tokens, std::span<double> weights, SampleNumbers&) const override {
    double log_s = 0.0;
    for (const DrawnToken& token : tokens) log_s += log_u(token) / static_cast<double>(tokens.size());
    for (size_t t = 0; t < tokens.size(); ++t) {
      weights[t] = clip_.clips(log_s, tokens[t].advantage) ? 0.0 : bounded_exp(log_s);
    }
  }

 private:
  ClipBand clip_;
};

const bool registered = register_correction({
    .name = "gspo",
    .summary = "PPO's clip on the geometric mean of a response's ratios",
    .formula = "w = s unless A > 0 and s > 1 + high, or A < 0 and s < 1 - low (then 0); s = exp(mean of log u), "
               "u = p / pi_old",
    .source = "arXiv 2507.18071; use with reduction = \"sequence_mean\"",
    .parameters = {{.name = "low", .default_value = 3e-4, .meaning = "clip below 1 - low", .maximum = 1.0},
                   {.name = "high", .default_value = 4e-4, .meaning = "clip above 1 + high"},
                   Anchor::parameter()},
    .ratio_rule = [](const CorrectionParameters& parameters) { return std::make_unique<Gspo>(parameters); },
});

}  // namespace
}  // namespace motley::algos
