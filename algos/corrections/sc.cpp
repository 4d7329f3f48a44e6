// Score centering alone: f = 1.
#include "algos/corrections/score_centering.h"

namespace motley::algos {
namespace {

struct Identity {
  double drawn(double) const { return 1.0; }
  double centered(double, double log_q) const { return std::exp(log_q); }
  double tail(double log_p_tail, double log_q_tail) const { return bounded_tail_ratio(log_p_tail, log_q_tail); }
};

class Sc final : public Correction {
 public:
  RecordKind needs() const override { return RecordKind::top_k; }
  void coefficients(const CorrectionBatch& batch, Coefficients& out) const override {
    score_centering(batch, Identity{}, out);
  }
};

const bool registered = register_correction({
    .name = "sc",
    .summary = "score centering: removes the drift that the sampler's mismatch adds at every prefix",
    .formula = "b[y] += -A; b[v] += A (q_v - rho p_v) for recorded v; rho = sampler's tail mass / trainer's",
    .source = "arXiv 2609.20807",
    .defaults = {},
    .make = [](const CorrectionParameters&) { return std::make_unique<Sc>(); },
});

}  // namespace
}  // namespace motley::algos
