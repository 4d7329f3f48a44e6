#include "tensor/transformer.h"

namespace motley {
namespace {

/// Norm over head_dim of every head (Qwen3).
Tensor norm_heads(ForwardContext& context, const Tensor& x, const std::string& gain, const TransformerConfig& config) {
  const Tensor heads = x.reshape({x.numel() / config.head_dim, config.head_dim});
  return context.norm(heads, gain, config.norm_eps).reshape(x.shape());
}

Tensor attention_block(const TransformerConfig& config, ForwardContext& context, const Tensor& hidden, int64_t layer,
                       std::span<const int32_t> positions) {
  const std::string prefix = "model.layers." + std::to_string(layer) + ".";
  std::vector<Tensor> qkv = context.project_qkv(hidden, prefix + "input_layernorm.weight", config.norm_eps, layer);
  if (config.qk_norm) {
    qkv[0] = norm_heads(context, qkv[0], prefix + "self_attn.q_norm.weight", config);
    qkv[1] = norm_heads(context, qkv[1], prefix + "self_attn.k_norm.weight", config);
  }
  const Tensor q = rope_in_place(std::move(qkv[0]), positions, config.heads, context.rope_table());
  const Tensor k = rope_in_place(std::move(qkv[1]), positions, config.kv_heads, context.rope_table());
  return context.project_added(context.attend(q, k, qkv[2], layer), layer, Projection::o, hidden);
}

Tensor transformer_layer(const TransformerConfig& config, ForwardContext& context, Tensor hidden, int64_t layer,
                         std::span<const int32_t> positions) {
  hidden = attention_block(config, context, hidden, layer, positions);
  const std::string gain = "model.layers." + std::to_string(layer) + ".post_attention_layernorm.weight";
  return context.feed_forward(hidden, gain, config.norm_eps, layer);
}

}  // namespace

Tensor ForwardContext::run_layer(const Tensor& x, const std::function<Tensor(const Tensor&)>& layer) {
  return layer(x);
}
Tensor ForwardContext::norm(const Tensor& x, const std::string& gain, double eps) {
  return rms_norm(x, parameter(gain), eps);
}
Tensor ForwardContext::project_gated(const Tensor& x, int64_t layer, Projection projection, const Tensor& gate) {
  return silu_mul(gate, project(x, layer, projection));
}
std::vector<Tensor> ForwardContext::project_qkv(const Tensor& x, const std::string& gain, double eps, int64_t layer) {
  const Tensor n = norm(x, gain, eps);
  return {project(n, layer, Projection::q), project(n, layer, Projection::k), project(n, layer, Projection::v)};
}
Tensor ForwardContext::feed_forward(const Tensor& x, const std::string& gain, double eps, int64_t layer) {
  const Tensor n = norm(x, gain, eps), gate = project(n, layer, Projection::gate);
  return project_added(project_gated(n, layer, Projection::up, gate), layer, Projection::down, x);
}
Tensor ForwardContext::project_added(const Tensor& x, int64_t layer, Projection projection, const Tensor& residual) {
  return add(residual, project(x, layer, projection));
}

Tensor transformer_layers(const TransformerConfig& given, ForwardContext& context, std::span<const int32_t> ids,
                          std::span<const int32_t> positions) {
  MOTLEY_CHECK(ids.size() == positions.size(), "transformer", "needs one position per token");
  const TransformerConfig config = given.resolved();
  Tensor hidden = embedding(context.parameter("model.embed_tokens.weight"), ids);
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    hidden = context.run_layer(
        hidden, [=, &context](const Tensor& x) { return transformer_layer(config, context, x, layer, positions); });
  }
  return hidden;
}

Tensor final_norm(const TransformerConfig& config, ForwardContext& context, const Tensor& hidden) {
  return context.norm(hidden, "model.norm.weight", config.norm_eps);
}

Tensor transformer_hidden(const TransformerConfig& config, ForwardContext& context, std::span<const int32_t> ids,
                          std::span<const int32_t> positions) {
  return final_norm(config, context, transformer_layers(config, context, ids, positions));
}

void PackedSequences::append(std::span<const int32_t> sequence) {
  ids.insert(ids.end(), sequence.begin(), sequence.end());
  for (size_t i = 0; i < sequence.size(); ++i) positions.push_back(static_cast<int32_t>(i));
  starts.push_back(static_cast<int32_t>(ids.size()));
}

}  // namespace motley
