// Random batches for the references, and what a correction makes of them.
#pragma once

#include "algos/correction.h"
#include "kernels/philox.h"
#include "tests/algos/reference_dense.h"

namespace motley::algos {

/// What a sampler records: nothing but the drawn token, its candidate set, its K largest and the mass of the rest, all.
enum class RecordStyle : uint8_t { sampled, candidates, top_k, full };

/// A CorrectionBatch that owns what it shows, of whole distributions.
class ShownBatch {
 public:
  static constexpr int64_t kStepsSinceOld = 1, kStepsPerBatch = 2;  // pi_old need not be p
  explicit ShownBatch(const std::vector<reference::DenseSequence>& sequences) {
    for (size_t s = 0; s < sequences.size(); ++s)
      for (const reference::DenseToken& token : sequences[s]) append(token, static_cast<int64_t>(s));
  }
  CorrectionBatch view() const {
    CorrectionBatch batch{.offsets = offsets_, .sampled = sampled_, .log_p = log_p_, .log_q = log_q_};
    batch.in_record = in_record_;
    batch.log_p_tail = log_p_tail_, batch.log_q_tail = log_q_tail_;
    batch.log_p_old = log_p_old_;
    batch.advantage = advantage_;
    batch.sequence = sequence_;
    batch.staleness = staleness_;
    batch.steps_since_old = kStepsSinceOld, batch.steps_per_batch = kStepsPerBatch;
    return batch;
  }
  /// d loss / d logits that the correction's b gives, [tokens][vocabulary]: b_j - p_j sum_v b_v.
  std::vector<std::vector<double>> logit_gradients(const Coefficients& out) const {
    std::vector<std::vector<double>> all;
    for (size_t t = 0; t < p_.size(); ++t) {
      double sum = 0.0;
      for (int64_t k = offsets_[t]; k < offsets_[t + 1]; ++k) sum += out.b[static_cast<size_t>(k)];
      all.push_back(p_[t]);
      for (double& x : all.back()) x *= -sum;
      for (auto k = static_cast<size_t>(offsets_[t]); k < static_cast<size_t>(offsets_[t + 1]); ++k)
        all.back()[ids_[k]] += out.b[k];
    }
    return all;
  }

 private:
  void append(const reference::DenseToken& token, int64_t sequence) {
    const std::vector<double> log_p = reference::log_softmax(token.z);
    double tail = 0.0;
    std::vector<double> p;
    for (size_t v = 0; v < log_p.size(); ++v) {
      const bool drawn = v == token.drawn;
      p.push_back(std::exp(log_p[v]));
      if (!token.listed[v]) tail += p.back();
      if (!token.listed[v] && !drawn) continue;
      if (drawn) sampled_.push_back(static_cast<int64_t>(ids_.size()));
      ids_.push_back(v);
      log_p_.push_back(log_p[v]);
      log_q_.push_back(token.log_q[v]);
      in_record_.push_back(token.listed[v]);
    }
    p_.push_back(p);
    offsets_.push_back(static_cast<int64_t>(ids_.size()));
    const bool has_tail = std::isfinite(token.log_q_tail);
    log_p_tail_.push_back(has_tail ? std::log(tail) : token.log_q_tail);
    log_q_tail_.push_back(token.log_q_tail);
    log_p_old_.push_back(token.log_p_old);
    advantage_.push_back(token.advantage);
    sequence_.push_back(sequence);
    staleness_.push_back(token.staleness);
  }

  std::vector<int64_t> offsets_{0}, sampled_, sequence_, staleness_;
  std::vector<double> log_p_, log_q_, log_p_tail_, log_q_tail_, log_p_old_, advantage_;
  std::vector<uint8_t> in_record_;
  std::vector<size_t> ids_;
  std::vector<std::vector<double>> p_;
};

inline constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

/// A trainer and a sampler whose log-ratios have a standard deviation of `mismatch`, and pi_old between them.
inline reference::DenseToken random_dense_token(kernels::RandomStream& random, size_t vocabulary, RecordStyle style,
                                                double mismatch) {
  reference::DenseToken token;
  std::vector<double> z_q;
  for (size_t v = 0; v < vocabulary; ++v) {
    z_q.push_back(1.5 * random.normal());
    token.z.push_back(z_q[v] + mismatch * random.normal());
  }
  auto sorted = z_q;
  std::sort(sorted.rbegin(), sorted.rend());
  const double cut = sorted[vocabulary / 3];
  double sum = 0.0, tail = 0.0;
  for (size_t v = 0; v < vocabulary; ++v) {
    token.listed.push_back(style == RecordStyle::full || (style != RecordStyle::sampled && z_q[v] > cut));
    if (style == RecordStyle::candidates && !token.listed[v]) z_q[v] = token.z[v] = kMinusInfinity;
    sum += std::exp(z_q[v]);
  }
  for (size_t v = 0; v < vocabulary; ++v) {
    token.log_q.push_back(z_q[v] - std::log(sum));
    if (!token.listed[v]) tail += std::exp(token.log_q[v]);
  }
  const bool has_tail = style == RecordStyle::top_k || style == RecordStyle::sampled;
  token.log_q_tail = has_tail ? std::log(tail) : kMinusInfinity;
  // Drawn from the sampler, so that the drawn tokens are those that it would draw.
  double left = random.uniform();
  for (size_t v = 0; v < vocabulary; ++v) {
    if (!std::isfinite(token.log_q[v])) continue;
    token.drawn = v;
    if ((left -= std::exp(token.log_q[v])) < 0.0) break;
  }
  token.log_p_old = token.log_q[token.drawn] + mismatch * random.normal();
  return token;
}

}  // namespace motley::algos
