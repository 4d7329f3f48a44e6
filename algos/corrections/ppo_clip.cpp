// PPO's clipped objective min(u A, clip(u, 1 - low, 1 + high) A), with the dual clip for A < 0: at least dual * A.
#include "algos/corrections/ratio.h"

namespace motley::algos {
namespace {

class PpoClip final : public AnchoredRule {
 public:
  explicit PpoClip(const CorrectionParameters& parameters)
      : AnchoredRule(parameters),
        clip_(number(parameters, "low"), number(parameters, "high")),
        log_dual_(std::log(number(parameters, "dual"))) {}
  void weights(std::span<const DrawnToken> tokens, std::span<double> weights, SampleNumbers&) const override {
    for (size_t t = 0; t < tokens.size(); ++t) {
      const double u = log_u(tokens[t]), a = tokens[t].advantage;
      const bool beyond_dual = a < 0.0 && u > log_dual_;
      weights[t] = beyond_dual || clip_.clips(u, a) ? 0.0 : bounded_exp(u);
    }
  }

 private:
  ClipBand clip_;
  double log_dual_;
};

const bool registered = register_correction({
    .name = "ppo-clip",
    .summary = "PPO's clip of p / pi_old, with dual clip",
    .formula = "w = u unless A > 0 and u > 1 + high, or A < 0 and (u < 1 - low or u > dual) (then 0); u = p / pi_old",
    .source = "arXiv 1707.06347, 2402.03300; dual clip arXiv 1912.09729, 3 as in verl",
    .parameters = {{.name = "low", .default_value = 0.2, .meaning = "clip below 1 - low", .maximum = 1.0},
                   {.name = "high", .default_value = 0.2, .meaning = "clip above 1 + high (DAPO: 0.28)"},
                   {.name = "dual",
                    .default_value = 3.0,
                    .meaning = "with A < 0, clip above this; inf: no dual clip",
                    .minimum = 1.0,
                    .above_minimum = true},
                   Anchor::parameter()},
    .ratio_rule = [](const CorrectionParameters& parameters) { return std::make_unique<PpoClip>(parameters); },
});

}  // namespace
}  // namespace motley::algos
