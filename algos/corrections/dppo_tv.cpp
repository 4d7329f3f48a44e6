// DPPO with the total variation of the drawn token's probability.
#include "algos/corrections/dppo.h"

namespace motley::algos {
namespace {

struct TotalVariation {
  double operator()(double log_p, double log_q) const { return std::abs(std::exp(log_p) - std::exp(log_q)); }
};

const bool registered = register_correction({
    .name = "dppo-tv",
    .summary = "trust region on |p - q| of the drawn token, around the recorded sampler",
    .formula = "w = min(r, cap) unless |p - q| > delta and (A > 0 and r > 1, or A < 0 and r < 1) (then 0)",
    .source = "arXiv 2602.04879",
    .parameters = dppo_parameters(0.2),
    .ratio_rule =
        [](const CorrectionParameters& parameters) { return std::make_unique<Dppo<TotalVariation>>(parameters); },
});

}  // namespace
}  // namespace motley::algos
