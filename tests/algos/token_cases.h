// Loss tokens for the correction tests: random pairs of distributions under each kind of record.
#pragma once

#include <algorithm>
#include <numeric>

#include "kernels/philox.h"
#include "tests/algos/batch_arrays.h"
#include "tests/algos/reference.h"

namespace motley::algos {

struct OwnedBatch : BatchArrays {
  std::vector<int> ids;  // [entries]

  /// The drawn token and every listed id, ascending.
  void append(const reference::Token& token) {
    double p_tail = 0.0, q_tail = 0.0;
    for (size_t v = 0; v < token.p.size(); ++v) {
      const bool drawn = static_cast<int>(v) == token.drawn;
      if (!token.listed[v]) p_tail += token.p[v], q_tail += token.q[v];
      if (!token.listed[v] && !drawn) continue;
      if (drawn) sampled.push_back(static_cast<int64_t>(ids.size()));
      ids.push_back(static_cast<int>(v));
      log_p.push_back(std::log(token.p[v]));
      log_q.push_back(std::log(token.q[v]));
      in_record.push_back(token.listed[v]);
    }
    offsets.push_back(static_cast<int64_t>(ids.size()));
    log_p_tail.push_back(token.tail ? std::log(p_tail) : -reference::kInfinity);
    log_q_tail.push_back(token.tail ? std::log(q_tail) : -reference::kInfinity);
    advantage.push_back(token.advantage);
    sequence.push_back(static_cast<int64_t>(sequence.size()));
  }
  /// b of token t spread over the vocabulary.
  std::vector<double> dense(const Coefficients& out, size_t t, size_t vocabulary) const {
    std::vector<double> b(vocabulary, 0.0);
    for (auto k = static_cast<size_t>(offsets[t]); k < static_cast<size_t>(offsets[t + 1]); ++k) {
      b[static_cast<size_t>(ids[k])] = out.b[k];
    }
    return b;
  }
};

/// One token with the drawn id alone, from its log-probabilities.
inline OwnedBatch single(double log_p, double log_q, double advantage) {
  OwnedBatch batch;
  batch.offsets = {0, 1};
  batch.sampled = {0};
  batch.log_p = {log_p};
  batch.log_q = {log_q};
  batch.in_record = {1};
  batch.log_p_tail = batch.log_q_tail = {-reference::kInfinity};
  batch.advantage = {advantage};
  batch.sequence = {0};
  batch.ids = {0};
  return batch;
}

inline const std::vector<std::string> kRecordStyles{"candidates", "top_k", "full"};

/// The `count` largest entries.
inline std::vector<bool> largest_ids(const std::vector<double>& z, size_t count) {
  std::vector<size_t> order(z.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return z[a] > z[b]; });
  std::vector<bool> listed(z.size(), false);
  for (size_t i = 0; i < count; ++i) listed[order[i]] = true;
  return listed;
}

/// A random pair p, q whose log-ratios have a standard deviation of `mismatch`. The drawn id is 0 until set.
inline reference::Token random_token(kernels::RandomStream& random, size_t vocabulary, const std::string& style,
                                     double mismatch) {
  std::vector<double> z_q(vocabulary), z_p(vocabulary);
  for (size_t v = 0; v < vocabulary; ++v) {
    z_q[v] = 1.5 * random.normal();
    z_p[v] = z_q[v] + mismatch * random.normal();
  }
  reference::Token token;
  token.listed = style == "full" ? std::vector<bool>(vocabulary, true) : largest_ids(z_q, vocabulary / 3);
  token.tail = style == "top_k";
  const std::vector<bool> support = style == "candidates" ? token.listed : std::vector<bool>();
  token.p = reference::softmax(z_p, support);
  token.q = reference::softmax(z_q, support);
  token.advantage = 2.0 * random.uniform() - 1.0;
  return token;
}

}  // namespace motley::algos
