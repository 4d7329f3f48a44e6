// The reference for the learner's gradient: one sequence at a time, every log p of the vocabulary, dense cotangents.
#pragma once

#include "tests/algos/episodes.h"

namespace motley::algos {

inline std::vector<double> learner_gradient(const TransformerConfig& model, const LearnerConfig& config,
                                            const std::vector<Trajectory>& batch) {
  Parameters parameters = masters(model, config.profile.output);
  Learner learner(model, parameters, config);
  learner.gradient(batch);
  return gradients(parameters);
}

/// The surrogate with frozen coefficients.
class DenseSurrogate {
 public:
  DenseSurrogate(const TransformerConfig& model, const std::vector<Trajectory>& batch, std::string correction)
      : model_(model),
        batch_(batch),
        correction_(std::move(correction)),
        profile_(plain_profile(DType::f64)),
        rope_(model.max_positions, model.head_dim, model.rope_theta, DType::f64) {
    for (size_t i = 0; i < batch.size(); ++i) factors_.push_back(1.0 / static_cast<double>(loss_tokens(batch)));
  }
  /// On every token of a sample, in place of the token mean's.
  void set_factors(std::vector<double> factors) { factors_ = std::move(factors); }
  void freeze(const Parameters& parameters) {
    for (size_t i = 0; i < batch_.size(); ++i) {
      const double mean = 0.5 * (batch_[i ^ 1].reward + batch_[i].reward);  // groups of two, side by side
      const auto p = log_probs(parameters, batch_[i]);
      for (size_t t = 0; t < p.size(); ++t) {
        std::vector<double> b = reference::dense_cotangents(correction_, token(i, t, p[t], batch_[i].reward - mean));
        for (double& x : b) x *= factors_[i];
        cotangents_.push_back(b);
      }
    }
  }
  double value(const Parameters& parameters) const {
    double sum = 0.0;
    size_t row = 0;
    for (const Trajectory& episode : batch_) {
      for (const std::vector<double>& log_p : log_probs(parameters, episode)) {
        for (size_t v = 0; v < log_p.size(); ++v) {
          if (cotangents_[row][v] != 0.0) sum += cotangents_[row][v] * log_p[v];
        }
        ++row;
      }
    }
    return sum;
  }

  /// [loss tokens][vocabulary]; -inf outside the candidate set.
  std::vector<std::vector<double>> log_probs(const Parameters& parameters, const Trajectory& episode) const {
    NoGrad no_grad;
    PackedSequences sequences;
    sequences.append(episode.tokens);
    TrainerContext context(model_, parameters, profile_, rope_);
    const Tensor hidden = trainer_hidden(model_, context, sequences);
    const std::vector<double> h = hidden.to_doubles();
    const std::vector<double> w = context.parameter(head_weight_name(model_)).to_doubles();
    const auto width = static_cast<size_t>(model_.width), n = static_cast<size_t>(model_.vocabulary);
    std::vector<std::vector<double>> result;
    for (size_t i = 0; i < episode.tokens.size(); ++i) {
      if (!episode.loss_mask[i]) continue;
      std::vector<double> z(n, 0.0);
      for (size_t v = 0; v < n; ++v) {
        for (size_t d = 0; d < width; ++d) z[v] += h[(i - 1) * width + d] * w[v * width + d] / episode.temperature;
      }
      const size_t t = result.size();
      std::vector<bool> support;
      if (truncated(episode.records, t, model_.vocabulary)) {
        support.assign(n, false);
        for (int64_t k = episode.records.offsets[t]; k < episode.records.offsets[t + 1]; ++k) {
          support[static_cast<size_t>(episode.records.ids[static_cast<size_t>(k)])] = true;
        }
      }
      std::vector<double> p = reference::softmax(z, support);
      for (double& x : p) x = std::log(x);
      result.push_back(std::move(p));
    }
    return result;
  }

 private:
  static bool truncated(const TokenRecords& r, size_t t, int64_t vocabulary) {
    return std::isinf(r.log_tail[t]) && r.offsets[t + 1] - r.offsets[t] < vocabulary;
  }
  reference::Token token(size_t i, size_t t, const std::vector<double>& log_p, double advantage) const {
    const TokenRecords& records = batch_[i].records;
    reference::Token token;
    const auto n = static_cast<size_t>(model_.vocabulary);
    token.p.resize(n);
    token.q.assign(n, 0.0);
    token.listed.assign(n, false);
    for (size_t v = 0; v < n; ++v) token.p[v] = std::exp(log_p[v]);
    for (int64_t k = records.offsets[t]; k < records.offsets[t + 1]; ++k) {
      const auto v = static_cast<size_t>(records.ids[static_cast<size_t>(k)]);
      token.listed[v] = true;
      token.q[v] = std::exp(static_cast<double>(records.id_log_q[static_cast<size_t>(k)]));
    }
    token.drawn = records.tokens[t];
    token.advantage = advantage;
    token.tail = !std::isinf(records.log_tail[t]);
    // Only the sum of the tail is known to a record; the reference wants it spread somehow, with the drawn token's own
    // share at its place.
    const auto y = static_cast<size_t>(token.drawn);
    const double q_y = std::exp(static_cast<double>(records.log_q[t]));
    double rest = token.tail ? std::exp(static_cast<double>(records.log_tail[t])) : 0.0;
    if (!token.listed[y]) rest -= q_y;
    token.q[y] = q_y;
    for (size_t v = 0; v < n && rest != 0.0; ++v) {
      if (!token.listed[v] && v != y) token.q[v] = rest, rest = 0.0;
    }
    return token;
  }
  static size_t loss_tokens(const std::vector<Trajectory>& batch) {
    size_t count = 0;
    for (const Trajectory& episode : batch) count += episode.records.size();
    return count;
  }
  TransformerConfig model_;
  const std::vector<Trajectory>& batch_;
  std::string correction_;
  kernels::NumericProfile profile_;
  RopeTable rope_;
  std::vector<double> factors_;
  std::vector<std::vector<double>> cotangents_;
};

}  // namespace motley::algos
