// Staying near a reference policy: estimators of KL(p || ref) on the drawn tokens and, as losses, their gradients.
//
// With x = log p - log ref of the drawn token, prefixes as the sampler drew them, and w = min(p / q, cap) detached:
//   k1  x              in the reward, summed over a sample: with the policy gradient, that of the sequence's KL(p ||
//   ref).
//                      As a loss its gradient would be 0 in expectation.
//   k2  x^2 / 2        d/d log p = x: in expectation the gradient of every prefix's KL(p || ref).
//   k3  e^-x - 1 + x   d/d log p = 1 - ref / p: in expectation the gradient of every prefix's KL(ref || p), the other
//                      direction, although the value estimates KL(p || ref).
// Expectations are over p: the loss is multiplied by w, since the tokens were drawn from q (DeepSeek-V3.2, arXiv
// 2512.02556, multiplies so; with the ratio differentiated too, its k3 has the gradient of k2). Estimators:
// http://joschu.net/blog/kl-approx.html; gradients: docs/corrections.md.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace motley::algos {

/// "none", "k1", "k2", "k3".
const std::vector<std::string>& kl_names();

/// Within +-kLogRatioBound.
double bounded_log_ratio(double log_ratio);

struct KlTerm {
  double value = 0.0;      // of the estimator
  double cotangent = 0.0;  // d value / d log p
};
/// "k2" or "k3" at log-ratio x, which is bounded: no number becomes infinite.
KlTerm kl_term(std::string_view name, double log_ratio);

}  // namespace motley::algos
