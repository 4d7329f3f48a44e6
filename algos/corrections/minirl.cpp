// MiniRL: REINFORCE with the token's ratio to the sampler, and PPO's clip of p / pi_old as a mask.
#include "algos/corrections/ratio.h"

namespace motley::algos {
namespace {

class MiniRl final : public RatioRule {
 public:
  explicit MiniRl(const CorrectionParameters& parameters)
      : clip_(number(parameters, "low"), number(parameters, "high")) {}
  bool needs_old_log_probs() const override { return true; }
  bool clips_against_old() const override { return true; }
  void weights(std::span<const DrawnToken> tokens, std::span<double> weights, SampleNumbers&) const override {
    for (size_t t = 0; t < tokens.size(); ++t) {
      const double log_u = tokens[t].log_p - tokens[t].log_p_old;
      weights[t] = clip_.clips(log_u, tokens[t].advantage) ? 0.0 : bounded_exp(tokens[t].log_ratio());
    }
  }

 private:
  ClipBand clip_;
};

const bool registered = register_correction({
    .name = "minirl",
    .summary = "ratio to the sampler, masked where p / pi_old leaves PPO's clip",
    .formula = "w = r unless A > 0 and u > 1 + high, or A < 0 and u < 1 - low (then 0); u = p / pi_old",
    .source = "arXiv 2512.01374; clip 0.2 / 0.27 as in the baseline of arXiv 2507.18071",
    .parameters = {{.name = "low", .default_value = 0.2, .meaning = "mask below 1 - low", .maximum = 1.0},
                   {.name = "high", .default_value = 0.27, .meaning = "mask above 1 + high"}},
    .ratio_rule = [](const CorrectionParameters& parameters) { return std::make_unique<MiniRl>(parameters); },
});

}  // namespace
}  // namespace motley::algos
