// Score centering on top of masked importance sampling: f(r) = r inside the band, 0 outside. In band q f(p / q) = p,
// so a token's centering term is not 0 only where something recorded is masked.
#include "algos/corrections/score_centering.h"

namespace motley::algos {
namespace {

struct Masked {
  RatioBand band;
  double drawn(double log_ratio) const { return band.contains(log_ratio) ? bounded_exp(log_ratio) : 0.0; }
  double centered(double log_p, double log_q) const { return band.contains(log_p - log_q) ? std::exp(log_p) : 0.0; }
  double tail(double log_p_tail, double log_q_tail) const { return band.contains(log_p_tail - log_q_tail) ? 1.0 : 0.0; }
};

class ScMis final : public Correction {
 public:
  explicit ScMis(const CorrectionParameters& parameters) : weight_{RatioBand(parameters)} {}
  RecordKind needs() const override { return RecordKind::top_k; }
  void coefficients(const CorrectionBatch& batch, Coefficients& out) const override {
    score_centering(batch, weight_, out);
  }

 private:
  Masked weight_;
};

const bool registered = register_correction({
    .name = "sc+mis",
    .summary = "score centering with masked importance sampling",
    .formula = "b[y] += -A r if r in [low, high]; b[v] += A (p_v [p_v/q_v in band] - alpha p_v) for recorded v; "
               "alpha = 1 if 1/rho in band, else 0",
    .source = "arXiv 2609.20807 with the band of arXiv 2510.18855",
    .defaults = {{"low", 0.5}, {"high", 5.0}},
    .make = [](const CorrectionParameters& parameters) { return std::make_unique<ScMis>(parameters); },
});

}  // namespace
}  // namespace motley::algos
