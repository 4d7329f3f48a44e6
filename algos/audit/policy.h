// The policies that `motley audit` makes problems of: a table of logits, one row per prefix, and a tiny transformer
// trained and differentiated by the real autograd in float64.
#pragma once

#include <memory>
#include <vector>

#include "algos/audit/problem.h"
#include "kernels/profile.h"

namespace motley::algos::audit {

/// Values [rows, vocabulary] are row-major over the tree's prefixes. Weights are kept as numbers that a float holds, so
/// that a sampler's fp32 masters are the trainer's weights exactly.
class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::vector<double> log_p() const = 0;
  /// What a sampler of that profile computes from the same weights, normalized in float64.
  virtual std::vector<double> log_q(const kernels::NumericProfile& profile) const = 0;
  /// weights += rate * gradient, given as coefficients on the logits that sum to 0 over every row.
  virtual void ascend(const std::vector<double>& gradient, double rate) = 0;
  virtual std::unique_ptr<Policy> clone() const = 0;
  /// Problem::gram.
  virtual std::vector<double> gram() const = 0;
};

/// Logits are normal with this standard deviation.
inline constexpr double kLogitDeviation = 1.5;

/// Its weights are its logits: a sampler's profile rounds them, as its weight format rounds a matrix.
std::unique_ptr<Policy> make_table_policy(const Tree& tree, int64_t vocabulary, uint64_t seed);
/// One layer of width 16, untied head scaled so that logits vary as the table's. A sampler is the decoding engine in
/// its profile: weights, activations, KV cache and output rounded as there. Every episode's prompt is token 0.
std::unique_ptr<Policy> make_transformer_policy(const Tree& tree, int64_t vocabulary, uint64_t seed);

}  // namespace motley::algos::audit
