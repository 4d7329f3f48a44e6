#include "tensor/transformer.h"

namespace motley {
namespace {

/// Norm over head_dim of every head (Qwen3).
Tensor norm_heads(const Tensor& x, const Tensor& gain, const TransformerConfig& config) {
  return rms_norm(x.reshape({x.numel() / config.head_dim, config.head_dim}), gain, config.norm_eps).reshape(x.shape());
}

Tensor attention_block(const TransformerConfig& config, ForwardContext& context, const Tensor& x, int64_t layer,
                       std::span<const int32_t> positions) {
  Tensor q = context.project(x, layer, Projection::q);
  Tensor k = context.project(x, layer, Projection::k);
  const Tensor v = context.project(x, layer, Projection::v);
  if (config.qk_norm) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".self_attn.";
    q = norm_heads(q, context.parameter(prefix + "q_norm.weight"), config);
    k = norm_heads(k, context.parameter(prefix + "k_norm.weight"), config);
  }
  q = rope(q, positions, config.heads, context.rope_table());
  k = rope(k, positions, config.kv_heads, context.rope_table());
  return context.project(context.attend(q, k, v, layer), layer, Projection::o);
}

Tensor feed_forward_block(ForwardContext& context, const Tensor& x, int64_t layer) {
  const Tensor gate = context.project(x, layer, Projection::gate);
  const Tensor up = context.project(x, layer, Projection::up);
  return context.project(silu_mul(gate, up), layer, Projection::down);
}

}  // namespace

Tensor transformer_hidden(const TransformerConfig& given, ForwardContext& context, std::span<const int32_t> ids,
                          std::span<const int32_t> positions) {
  MOTLEY_CHECK(ids.size() == positions.size(), "transformer", "needs one position per token");
  const TransformerConfig config = given.resolved();
  Tensor hidden = embedding(context.parameter("model.embed_tokens.weight"), ids);
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    const auto norm = [&](const char* name) {
      return rms_norm(hidden, context.parameter(prefix + name), config.norm_eps);
    };
    hidden = add(hidden, attention_block(config, context, norm("input_layernorm.weight"), layer, positions));
    hidden = add(hidden, feed_forward_block(context, norm("post_attention_layernorm.weight"), layer));
  }
  return rms_norm(hidden, context.parameter("model.norm.weight"), config.norm_eps);
}

void PackedSequences::append(std::span<const int32_t> sequence) {
  ids.insert(ids.end(), sequence.begin(), sequence.end());
  for (size_t i = 0; i < sequence.size(); ++i) positions.push_back(static_cast<int32_t>(i));
  starts.push_back(static_cast<int32_t>(ids.size()));
}

}  // namespace motley
