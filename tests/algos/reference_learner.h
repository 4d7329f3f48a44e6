// The learner's batches for the references: every distribution from dense logits, and the way from a gradient with
// respect to logits to the parameters. The transformer is the engine's, in float64, one sequence at a time; what lies
// between its hidden states and its gradients is not.
#pragma once

#include "algos/learner.h"
#include "tests/algos/reference_dense.h"

namespace motley::algos {

/// The loss tokens of `batch` as a trainer with these parameters and the sampler's records have them.
class DenseTrainer {
 public:
  DenseTrainer(const TransformerConfig& model, const kernels::NumericProfile& profile)
      : model_(model), profile_(profile), rope_(model.max_positions, model.head_dim, model.rope_theta, DType::f64) {}

  std::vector<reference::DenseSequence> tokens(const Parameters& parameters, const std::vector<Trajectory>& batch,
                                               const std::vector<double>& advantage) const {
    std::vector<reference::DenseSequence> all;
    for (size_t i = 0; i < batch.size(); ++i) {
      all.emplace_back();
      const NoGrad no_grad;
      TrainerContext context(model_, parameters, profile_, rope_);
      const std::vector<double> h = hidden(context, batch[i]).to_doubles();
      const std::vector<double> w = context.parameter(head_weight_name(model_)).to_doubles();
      for (size_t t = 0; t < batch[i].records.size(); ++t) {
        all.back().push_back(token(batch[i], t));
        reference::DenseToken& token = all.back().back();
        token.advantage = advantage[i];
        const auto width = static_cast<size_t>(model_.width);
        for (size_t v = 0; v < token.z.size(); ++v) {
          double z = 0.0;
          for (size_t d = 0; d < width; ++d) z += h[t * width + d] * w[v * width + d];
          token.z[v] = token.z[v] + z / batch[i].temperature;  // -inf outside the support
        }
      }
    }
    return all;
  }

  /// Adds the gradient whose cotangents on the logits over the temperature are `slopes` [tokens of the batch]
  /// [vocabulary], times `factor` [samples], to the parameters' gradients.
  void propagate(const Parameters& parameters, const std::vector<Trajectory>& batch,
                 const std::vector<std::vector<double>>& slopes, const std::vector<double>& factor) const {
    size_t row = 0;
    for (size_t i = 0; i < batch.size(); ++i) {
      TrainerContext context(model_, parameters, profile_, rope_);
      const Tensor rows = hidden(context, batch[i]);
      auto query = std::make_shared<HeadQuery>();
      query->temperature = batch[i].temperature;
      query->selected_offsets = {0};
      std::vector<double> cotangents;
      for (size_t t = 0; t < batch[i].records.size(); ++t, ++row) {
        for (int32_t v = 0; v < static_cast<int32_t>(model_.vocabulary); ++v) {
          query->selected_ids.push_back(v);
          // They sum to 0 over the vocabulary, and so are the gradient of log p as well as that of z.
          cotangents.push_back(slopes[row][static_cast<size_t>(v)] * factor[i]);
        }
        query->selected_offsets.push_back(static_cast<int64_t>(query->selected_ids.size()));
      }
      const HeadResult head = selected_log_probs(rows, context.parameter(head_weight_name(model_)), query);
      head_backward(head, Tensor::from(std::span<const double>(cotangents), head.log_p.shape(), DType::f64), Tensor());
    }
  }

 private:
  /// The hidden states that predict the loss tokens.
  Tensor hidden(TrainerContext& context, const Trajectory& episode) const {
    PackedSequences sequences;
    sequences.append(episode.tokens);
    std::vector<int64_t> rows;
    for (size_t i = 0; i < episode.tokens.size(); ++i)
      if (episode.loss_mask[i]) rows.push_back(static_cast<int64_t>(i) - 1);
    return gather_rows(trainer_hidden(model_, context, sequences), rows);
  }
  /// The sampler's side; logits are 0 in the support and -inf outside.
  reference::DenseToken token(const Trajectory& episode, size_t t) const {
    const TokenRecords& records = episode.records;
    constexpr double kNone = -std::numeric_limits<double>::infinity();
    const auto n = static_cast<size_t>(model_.vocabulary);
    const int64_t listed = records.offsets[t + 1] - records.offsets[t];
    reference::DenseToken token;
    token.listed.assign(n, 0);
    token.log_q.assign(n, kNone);
    token.drawn = static_cast<size_t>(records.tokens[t]);
    token.log_q_tail = static_cast<double>(records.log_tail[t]);
    const bool truncated = std::isinf(token.log_q_tail) && listed < model_.vocabulary;
    token.z.assign(n, truncated ? kNone : 0.0);
    for (auto k = static_cast<size_t>(records.offsets[t]); k < static_cast<size_t>(records.offsets[t + 1]); ++k) {
      const auto v = static_cast<size_t>(records.ids[k]);
      token.listed[v] = 1;
      token.log_q[v] = static_cast<double>(records.id_log_q[k]);
      token.z[v] = 0.0;
    }
    token.log_q[token.drawn] = static_cast<double>(records.log_q[t]);
    return token;
  }

  TransformerConfig model_;
  kernels::NumericProfile profile_;
  RopeTable rope_;
};

}  // namespace motley::algos
