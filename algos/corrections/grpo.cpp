// Plain policy gradient: the sampler's probability does not enter.
#include "algos/correction.h"

namespace motley::algos {
namespace {

class Grpo final : public Correction {
 public:
  bool uses_sampler() const override { return false; }
  void coefficients(const CorrectionBatch& batch, Coefficients& out) const override {
    for (size_t t = 0; t < batch.tokens(); ++t) {
      if (batch.advantage[t] != 0.0) out.b[static_cast<size_t>(batch.sampled[t])] = -batch.advantage[t];
    }
  }
};

const bool registered = register_correction({
    .name = "grpo",
    .summary = "plain policy gradient, blind to the sampler",
    .formula = "b[y] = -A",
    .source = "arXiv 2402.03300; one step per batch, so its clip on p / pi_old never binds",
    .defaults = {},
    .make = [](const CorrectionParameters&) { return std::make_unique<Grpo>(); },
});

}  // namespace
}  // namespace motley::algos
