#include "algos/trainer_pass.h"

namespace motley::algos {

TrainerPass::TrainerPass(const TransformerConfig& model, const kernels::NumericProfile& profile,
                         bool checkpoint_activations, const Device& device)
    : model_(model),
      profile_(profile),
      checkpoint_activations_(checkpoint_activations),
      rope_(model.max_positions, model.head_dim, model.rope_theta, kernels::compute_dtype(profile.output), device) {}

Scored TrainerPass::score(const Parameters& parameters, const MicroBatch& micro) const {
  auto context = std::make_shared<TrainerContext>(model_, parameters, profile_, rope_);
  context->set_checkpointing(checkpoint_activations_);
  micro.query->choice = context->choice();
  const Tensor hidden = trainer_hidden(model_, *context, micro.sequences);
  const Tensor weight = context->parameter(head_weight_name(model_));
  Scored scored;
  if (checkpoint_activations_) scored.context = std::move(context);
  scored.head = selected_log_probs(gather_rows(hidden, micro.rows), weight, micro.query);
  scored.log_p = scored.head.log_p.to_doubles();
  scored.log_outside = scored.head.log_outside.to_doubles();
  scored.entropy = scored.head.entropy.to_doubles();
  return scored;
}

std::vector<std::vector<double>> TrainerPass::drawn_log_probs(const Parameters& parameters,
                                                              std::span<const Trajectory> batch,
                                                              std::span<const size_t> samples,
                                                              int64_t max_tokens) const {
  const NoGrad no_grad;
  std::vector<std::vector<double>> result(batch.size());
  for (const std::vector<size_t>& indices : plan_micro_batches(batch, samples, max_tokens)) {
    const MicroBatch micro = lay_out(batch, indices, {}, false, model_.vocabulary);
    if (micro.tokens() == 0) continue;
    micro.query->log_p_only = true;
    const std::vector<double> log_p = score(parameters, micro).log_p;
    for (size_t t = 0; t < micro.tokens(); ++t) result[micro.sample_of(t)].push_back(log_p[t]);
  }
  return result;
}

void propagate(const Scored& scored, std::vector<double> d_log_p, std::vector<double> d_entropy, double scale) {
  const auto scaled = [scale](std::vector<double>& values, const Tensor& like) {
    for (double& value : values) value *= scale;
    return Tensor::from(std::span<const double>(values), like.shape(), like.dtype(), like.device());
  };
  head_backward(scored.head, scaled(d_log_p, scored.head.log_p),
                d_entropy.empty() ? Tensor() : scaled(d_entropy, scored.head.entropy));
}

}  // namespace motley::algos
