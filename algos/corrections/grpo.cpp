// Plain policy gradient: the sampler's probability does not enter.
#include "algos/corrections/ratio.h"

namespace motley::algos {
namespace {

class Grpo final : public TokenRule {
 public:
  bool uses_sampler() const override { return false; }
  TokenWeight weight(double, double, double) const override { return {.value = 1.0}; }
};

const bool registered = register_correction({
    .name = "grpo",
    .summary = "plain policy gradient, blind to the sampler",
    .formula = "w = 1",
    .source = "arXiv 2402.03300, without its clip (that is ppo-clip)",
    .parameters = {},
    .ratio_rule = [](const CorrectionParameters&) { return std::make_unique<Grpo>(); },
});

}  // namespace
}  // namespace motley::algos
