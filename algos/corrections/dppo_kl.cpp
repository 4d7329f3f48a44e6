// DPPO with the divergence between "drawn" and "not drawn" under the sampler and the trainer.
#include "algos/corrections/dppo.h"

namespace motley::algos {
namespace {

/// KL of the two-outcome distributions (q, 1 - q) and (p, 1 - p), in nats.
struct BinaryKl {
  double operator()(double log_p, double log_q) const {
    const double q = std::exp(log_q), rest = -std::expm1(log_q);
    const double drawn = q > 0.0 ? q * (log_q - log_p) : 0.0;
    return rest > 0.0 ? drawn + rest * (std::log(rest) - std::log(-std::expm1(log_p))) : drawn;
  }
};

const bool registered = register_correction({
    .name = "dppo-kl",
    .summary = "trust region on the binary KL of the drawn token, around the recorded sampler",
    .formula = "w = min(r, cap) unless D > delta and (A > 0 and r > 1, or A < 0 and r < 1) (then 0); "
               "D = q log(q / p) + (1 - q) log((1 - q) / (1 - p))",
    .source = "arXiv 2602.04879",
    .parameters = dppo_parameters(0.05),
    .ratio_rule = [](const CorrectionParameters& parameters) { return std::make_unique<Dppo<BinaryKl>>(parameters); },
});

}  // namespace
}  // namespace motley::algos
