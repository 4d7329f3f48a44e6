// A naive reference for the corrections: dense over the whole vocabulary, in float64, written from the formulas of the
// papers (algorithms: arXiv 2609.20807, 2510.18855) without any of the engine's code.
#pragma once

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace reference {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// One loss token as the reference sees it. Probabilities are 0 outside the support.
struct Token {
  std::vector<double> p;     // [vocabulary] trainer
  std::vector<double> q;     // [vocabulary] sampler
  std::vector<bool> listed;  // [vocabulary] recorded ids
  bool tail = false;         // ids outside the record have mass that was recorded only as a sum
  int drawn = 0;
  double advantage = 0.0;
};

inline double weight(const std::string& name, double r) {
  if (name == "token-is" || name == "sc+token-is") return r;
  if (name == "tis" || name == "sc+tis") return std::min(r, 2.0);
  if (name == "mis" || name == "sc+mis") return r >= 0.5 && r <= 5.0 ? r : 0.0;
  return 1.0;  // grpo, sc
}

/// Cotangent of the loss on log p of every id of the vocabulary, the modelled tail included.
inline std::vector<double> dense_cotangents(const std::string& name, const Token& token) {
  const size_t n = token.p.size();
  const auto y = static_cast<size_t>(token.drawn);
  std::vector<double> b(n, 0.0);
  b[y] = -token.advantage * weight(name, token.p[y] / token.q[y]);
  if (name.rfind("sc", 0) != 0) return b;
  double q_tail = 0.0, p_tail = 0.0;
  for (size_t v = 0; v < n; ++v) {
    if (!token.listed[v]) q_tail += token.q[v], p_tail += token.p[v];
  }
  for (size_t v = 0; v < n; ++v) {
    const double q_hat = token.listed[v] ? token.q[v] : token.tail ? q_tail / p_tail * token.p[v] : 0.0;
    if (q_hat > 0.0) b[v] += token.advantage * q_hat * weight(name, token.p[v] / q_hat);
  }
  return b;
}

/// The same through the softmax: dL/dz_j = sum_v b_v ([v = j] - p_j).
inline std::vector<double> logit_gradient(const std::vector<double>& b, const std::vector<double>& p) {
  double total = 0.0;
  for (const double x : b) total += x;
  std::vector<double> gradient(b.size());
  for (size_t j = 0; j < b.size(); ++j) gradient[j] = b[j] - total * p[j];
  return gradient;
}

/// Softmax over the ids of `support` (all when empty).
inline std::vector<double> softmax(const std::vector<double>& z, const std::vector<bool>& support = {}) {
  double high = -kInfinity, sum = 0.0;
  std::vector<double> p(z.size(), 0.0);
  for (size_t v = 0; v < z.size(); ++v) {
    if (support.empty() || support[v]) high = std::max(high, z[v]);
  }
  for (size_t v = 0; v < z.size(); ++v) {
    if (support.empty() || support[v]) sum += p[v] = std::exp(z[v] - high);
  }
  for (double& x : p) x /= sum;
  return p;
}

inline double largest(const std::vector<double>& values) {
  double result = 0.0;
  for (const double x : values) result = std::max(result, std::abs(x));
  return result;
}
inline double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double result = a.size() == b.size() ? 0.0 : kInfinity;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    const double d = std::abs(a[i] - b[i]);
    result = d >= 0.0 ? std::max(result, d) : kInfinity;  // NaN counts as infinitely far
  }
  return result;
}

}  // namespace reference
