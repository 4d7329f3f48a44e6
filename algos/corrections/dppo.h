// DPPO (arXiv 2602.04879): truncated importance sampling inside a trust region that is a bound on a divergence between
// sampler and trainer, not on their ratio, so that rare tokens may move by large factors and common ones may not.
#pragma once

#include "algos/corrections/ratio.h"

namespace motley::algos {

/// `Divergence`: a function of log p and log q of one id, >= 0.
template <class Divergence>
class Dppo final : public TokenRule {
 public:
  explicit Dppo(const CorrectionParameters& parameters)
      : delta_(number(parameters, "delta")), cap_(number(parameters, "cap")), log_cap_(std::log(cap_)) {}
  TokenWeight weight(double log_p, double log_q, double advantage) const override {
    const double log_ratio = log_p - log_q;
    const bool moves_away = (advantage > 0.0 && log_ratio > 0.0) || (advantage < 0.0 && log_ratio < 0.0);
    if (moves_away && !(Divergence()(log_p, log_q) <= delta_)) return {};
    if (log_ratio > log_cap_) return {.value = std::min(cap_, bounded_exp(log_ratio))};
    return TokenWeight::ratio();
  }

 private:
  double delta_, cap_, log_cap_;
};

inline std::vector<ParameterInfo> dppo_parameters(double delta) {
  return {cap_parameter(5.0, "; inf: none"),
          {.name = "delta", .default_value = delta, .meaning = "largest divergence", .above_minimum = true}};
}

}  // namespace motley::algos
