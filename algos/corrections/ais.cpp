// Adaptive importance sampling, after arXiv 2605.13907: one mixing coefficient per batch between the uncorrected and
// the importance-weighted gradient, from three diagnostics: how reliable the weights are, how severe the divergence is,
// and how much the weights amplify variance. Only the abstract could be read: which diagnostics there are is the
// paper's, the formula is ours.
#include <algorithm>

#include "algos/corrections/ratio.h"

namespace motley::algos {
namespace {

class Ais final : public RatioRule {
 public:
  explicit Ais(const CorrectionParameters& parameters)
      : cap_(number(parameters, "cap")), full_kl_(number(parameters, "kl")) {}
  Scope scope() const override { return Scope::batch; }
  void weights(std::span<const DrawnToken> tokens, std::span<double> weights, SampleNumbers& numbers) const override {
    const auto n = static_cast<double>(tokens.size());
    double sum = 0.0, squares = 0.0, k3 = 0.0;
    for (size_t t = 0; t < tokens.size(); ++t) {
      const double x = std::clamp(tokens[t].log_ratio(), -kLogRatioBound, kLogRatioBound);
      weights[t] = std::min(cap_, std::exp(x));
      sum += weights[t];
      squares += weights[t] * weights[t];
      k3 += std::expm1(x) - x;
    }
    const double reliability = sum * sum / (n * squares);  // effective sample size, as a share
    const double severity = std::min(1.0, k3 / n / full_kl_);
    const double amplification = std::max(1.0, squares / n);
    const double mixing = severity * reliability / amplification;
    for (double& w : weights) w = 1.0 + mixing * (w - 1.0);
    numbers["ais/mixing"].push_back(mixing);
  }

 private:
  double cap_, full_kl_;
};

const bool registered = register_correction({
    .name = "ais",
    .summary = "mixes the plain and the importance-weighted gradient by the batch's own diagnostics",
    .formula = "w = 1 + m (c - 1), c = min(r, cap), m = min(1, k3 / kl) * ESS / max(1, mean of c^2), with "
               "k3 = mean of r - 1 - log r and ESS = (sum c)^2 / (N sum c^2) over the optimizer step",
    .source = "after the abstract of arXiv 2605.13907; the formula is motley's own",
    .parameters = {cap_parameter(2.0, " before mixing"),
                   {.name = "kl",
                    .default_value = 0.01,
                    .meaning = "k3 per token from which on the correction is at full strength",
                    .above_minimum = true}},
    .ratio_rule = [](const CorrectionParameters& parameters) { return std::make_unique<Ais>(parameters); },
});

}  // namespace
}  // namespace motley::algos
