#include "tensor/transformer.h"

namespace motley {
namespace {

/// Norm over head_dim of every head (Qwen3).
Tensor norm_heads(ForwardContext& context, const Tensor& x, const std::string& gain, const TransformerConfig& config) {
  const Tensor heads = x.reshape({x.numel() / config.head_dim, config.head_dim});
  return context.norm(heads, gain, config.norm_eps).reshape(x.shape());
}

/// x is `residual` after its norm.
Tensor attention_block(const TransformerConfig& config, ForwardContext& context, const Tensor& residual,
                       const Tensor& x, int64_t layer, std::span<const int32_t> positions) {
  Tensor q = context.project(x, layer, Projection::q);
  Tensor k = context.project(x, layer, Projection::k);
  const Tensor v = context.project(x, layer, Projection::v);
  if (config.qk_norm) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".self_attn.";
    q = norm_heads(context, q, prefix + "q_norm.weight", config);
    k = norm_heads(context, k, prefix + "k_norm.weight", config);
  }
  x.forget();  // read by products only: backward makes it again from the residual stream
  q = rope_in_place(std::move(q), positions, config.heads, context.rope_table());
  k = rope_in_place(std::move(k), positions, config.kv_heads, context.rope_table());
  return context.project_added(context.attend(q, k, v, layer), layer, Projection::o, residual);
}

Tensor transformer_layer(const TransformerConfig& config, ForwardContext& context, Tensor hidden, int64_t layer,
                         std::span<const int32_t> positions) {
  const std::string prefix = "model.layers." + std::to_string(layer) + ".";
  const auto norm = [&](const char* name) { return context.norm(hidden, prefix + name, config.norm_eps); };
  hidden = attention_block(config, context, hidden, norm("input_layernorm.weight"), layer, positions);
  return context.feed_forward(hidden, norm("post_attention_layernorm.weight"), layer);
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
Tensor ForwardContext::feed_forward(const Tensor& residual, const Tensor& x, int64_t layer) {
  const Tensor gate = project(x, layer, Projection::gate);
  return project_added(project_gated(x, layer, Projection::up, gate), layer, Projection::down, residual);
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
