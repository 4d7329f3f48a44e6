// Score centering (arXiv 2609.20807): subtracts from the update of every loss token its expectation under the sampler,
//   g = A [ w_y grad log p_y - sum_v qhat_v w_v grad log p_v ],   w_v = f(p_v / q_v),
// where qhat is the record on its ids and rho p_v outside them, rho = sampler's tail mass / trainer's. As
// sum_v p_v grad log p_v = 0, the modelled tail folds into the recorded ids:
//   b[y] += -A w_y,   b[v] += A (q_v f(p_v / q_v) - alpha p_v) for recorded v,   alpha = rho f(1 / rho).
#pragma once

#include <cmath>
#include <limits>

#include "algos/corrections/ratio.h"

namespace motley::algos {

/// Trainer tails below this mass do not raise rho further (the floor of the paper). With b in float, rho p_v cancels
/// against the softmax term only to rho * 6e-8, so an unlimited rho would be noise.
inline constexpr double kTailFloor = 1e-6;

/// exp(log_q_tail - log_p_tail), at most max(1, Q_tail / kTailFloor).
inline double bounded_tail_ratio(double log_p_tail, double log_q_tail) {
  const double limit = std::max(0.0, log_q_tail - std::log(kTailFloor));
  return bounded_exp(std::min(log_q_tail - log_p_tail, limit));
}

/// `Weight` is f: drawn(log r) = f(r), centered(log p, log q) = q f(p / q), tail(log P, log Q) = rho f(1 / rho).
template <class Weight>
void score_centering(const CorrectionBatch& batch, const Weight& weight, Coefficients& out) {
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  std::vector<double> tail_ratios;
  for (size_t t = 0; t < batch.tokens(); ++t) {
    const double w = weight.drawn(drawn_log_ratio(batch, t));
    out.masked[t] = w == 0.0;
    const double log_p_tail = batch.log_p_tail[t], log_q_tail = batch.log_q_tail[t];
    const bool has_tail = log_q_tail > kNone;
    if (has_tail) tail_ratios.push_back(std::exp(log_q_tail - log_p_tail));

    const double a = batch.advantage[t];
    if (a == 0.0) continue;
    const double alpha = has_tail ? weight.tail(log_p_tail, log_q_tail) : 0.0;
    for (auto k = static_cast<size_t>(batch.offsets[t]); k < static_cast<size_t>(batch.offsets[t + 1]); ++k) {
      if (!batch.in_record[k]) continue;
      out.b[k] += a * (weight.centered(batch.log_p[k], batch.log_q[k]) - alpha * std::exp(batch.log_p[k]));
    }
    out.b[static_cast<size_t>(batch.sampled[t])] -= a * w;
  }
  if (!tail_ratios.empty()) out.samples["sc/tail_ratio"] = std::move(tail_ratios);
}

}  // namespace motley::algos
