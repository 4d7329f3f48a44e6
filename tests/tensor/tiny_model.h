// A model small enough to difference every parameter of, and the trainer's loss on it.
#pragma once

#include "tensor/transformer.h"
#include "tests/tensor/gradcheck.h"

namespace motley::test {

struct Variant {
  bool qk_norm = false, tied_head = true;
};
constexpr Variant kVariants[] = {{false, true}, {true, true}, {false, false}, {true, false}};

inline TransformerConfig tiny_model(const Variant& variant = {}) {
  TransformerConfig config;
  config.vocabulary = 11;
  config.layers = 2;
  config.width = 8;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 4;
  config.ffn = 12;
  config.qk_norm = variant.qk_norm;
  config.tied_head = variant.tied_head;
  config.max_positions = 32;
  return config.resolved();
}

inline kernels::NumericProfile plain_profile(DType dtype) {
  if (dtype == DType::f64) {
    kernels::NumericProfile profile;
    profile.name = "fp64";
    profile.output = DType::f64;
    return profile;
  }
  return *kernels::find_profile(kernels::dtype_name(dtype));
}

inline std::vector<std::vector<int32_t>> tiny_sequences() {
  return {{3, 1, 4, 1, 5}, {9, 2}, {6, 5, 3, 5, 8, 9, 7, 9}, {0}, {2, 7, 1, 8, 2, 8}, {10, 10, 10}, {4, 6}};
}

inline PackedSequences packed(std::span<const std::vector<int32_t>> sequences) {
  PackedSequences result;
  for (const auto& sequence : sequences) result.append(sequence);
  return result;
}

/// The trainer's pass over sequences in one micro-batch: adds `weight` times the gradient of the summed log p of each
/// next token, and of 0.1 times the entropies, when gradients are on; returns that sum.
inline double trainer_pass(const TransformerConfig& config, const Parameters& parameters,
                           const kernels::NumericProfile& profile, std::span<const std::vector<int32_t>> sequences,
                           double weight = 1.0) {
  constexpr double kEntropyWeight = 0.1;
  const RopeTable table(config.max_positions, config.head_dim, config.rope_theta,
                        kernels::compute_dtype(profile.output), parameters.device());
  TrainerContext context(config, parameters, profile, table);
  const PackedSequences batch = packed(sequences);
  const Tensor hidden = trainer_hidden(config, context, batch);
  auto query = std::make_shared<HeadQuery>();
  query->choice = context.choice();
  std::vector<int64_t> rows;
  query->selected_offsets = {0};
  for (size_t i = 0; i + 1 < batch.ids.size(); ++i) {
    if (batch.positions[i + 1] == 0) continue;
    rows.push_back(static_cast<int64_t>(i));
    query->selected_ids.push_back(batch.ids[i + 1]);
    query->selected_offsets.push_back(static_cast<int64_t>(query->selected_ids.size()));
  }
  const HeadResult result =
      selected_log_probs(gather_rows(hidden, rows), context.parameter(head_weight_name(config)), query);
  double total = 0.0;
  for (const double log_p : result.log_p.to_doubles()) total += log_p;
  for (const double entropy : result.entropy.to_doubles()) total += kEntropyWeight * entropy;
  if (grad_enabled() && result.both.requires_grad()) {
    const auto filled = [&](const Tensor& like, double value) {
      return Tensor::from(std::span<const double>(std::vector<double>(static_cast<size_t>(like.numel()), value)),
                          like.shape(), like.dtype(), like.device());
    };
    head_backward(result, filled(result.log_p, weight), filled(result.entropy, kEntropyWeight * weight));
  }
  return weight * total;
}

inline std::vector<double> all_gradients(const Parameters& parameters) {
  std::vector<double> all;
  for (const std::string& name : parameters.names()) {
    const std::vector<double> gradient = parameters.at(name).grad_buffer().to_doubles();
    all.insert(all.end(), gradient.begin(), gradient.end());
  }
  return all;
}

}  // namespace motley::test
