#include "tensor/transformer.h"

namespace motley {

using kernels::Format;

namespace {

bool plain(const kernels::Quantization& how) {
  if (how.scaling != kernels::Scaling::none) return false;
  return how.format == Format::fp64 || how.format == Format::fp32 || how.format == Format::bf16 ||
         how.format == Format::fp16;
}

DType storage_type(Format format) {
  switch (format) {
    case Format::fp64:
      return DType::f64;
    case Format::fp32:
      return DType::f32;
    case Format::bf16:
      return DType::bf16;
    default:
      return DType::f16;
  }
}

/// Whether every value of `type` is a value of `format`.
bool holds(Format format, DType type) {
  if (format == Format::fp64) return true;
  if (format == Format::fp32) return type != DType::f64;
  return (format == Format::bf16 && type == DType::bf16) || (format == Format::fp16 && type == DType::f16);
}

}  // namespace

TrainerContext::TrainerContext(const TransformerConfig& config, const Parameters& parameters,
                               const kernels::NumericProfile& profile, const RopeTable& table)
    : config_(config), parameters_(parameters), profile_(profile), table_(table) {
  if (profile.output == DType::f64) return;
  MOTLEY_CHECK(plain(profile.weight) && profile.weight.format != Format::fp64, "trainer",
               "profile " + profile.name + ": weights can be trained in fp32, bf16 and fp16 only");
  MOTLEY_CHECK(plain(profile.activation) && holds(profile.activation.format, profile.output), "trainer",
               "profile " + profile.name + ": activations cannot be rounded further than layer outputs in training");
}

Tensor TrainerContext::parameter(const std::string& name) {
  const auto found = cast_.find(name);
  if (found != cast_.end()) return found->second;
  const GradMode with_history(true);  // a checkpointed layer is run without gradients first, and asks once
  return cast_.emplace(name, cast(parameters_.at(name), profile_.output)).first->second;
}

Tensor TrainerContext::projection_weight(int64_t layer, Projection projection) {
  const std::string name = projection_name(layer, projection);
  const DType type = profile_.output == DType::f64 ? DType::f64 : storage_type(profile_.weight.format);
  auto found = cast_.find(name);
  if (found == cast_.end()) {
    const GradMode with_history(true);
    found = cast_.emplace(name, cast(parameters_.at(name), type)).first;
  }
  return found->second;
}

Tensor TrainerContext::project(const Tensor& x, int64_t layer, Projection projection) {
  return linear(x, projection_weight(layer, projection), profile_.k_tile, choice());
}

Tensor TrainerContext::project_added(const Tensor& x, int64_t layer, Projection projection, const Tensor& residual) {
  return linear_added(x, projection_weight(layer, projection), residual, profile_.k_tile, choice());
}

std::vector<Tensor> TrainerContext::project_qkv(const Tensor& x, const std::string& gain, double eps, int64_t layer) {
  const auto weight = [&](Projection projection) { return projection_weight(layer, projection); };
  return normed_linears(x, {parameter(gain),
                            {weight(Projection::q), weight(Projection::k), weight(Projection::v)},
                            eps,
                            profile_.k_tile,
                            choice()});
}

Tensor TrainerContext::feed_forward(const Tensor& x, const std::string& gain, double eps, int64_t layer) {
  const auto weight = [&](Projection projection) { return projection_weight(layer, projection); };
  return motley::feed_forward(x, {parameter(gain), weight(Projection::gate), weight(Projection::up),
                                  weight(Projection::down), eps, profile_.k_tile, choice()});
}

Tensor TrainerContext::run_layer(const Tensor& x, const std::function<Tensor(const Tensor&)>& layer) {
  return checkpointing_ ? checkpoint(x, layer) : layer(x);
}

Tensor TrainerContext::attend(const Tensor& q, const Tensor& k, const Tensor& v, int64_t) {
  const bool exact = q.dtype() == DType::f64 || (holds(profile_.kv_cache, q.dtype()) && profile_.kv_scale == 1.0);
  const auto cached = [&](const Tensor& x) {
    return exact ? x : round_values(x, profile_.kv_cache, profile_.kv_scale);
  };
  return attention(q, cached(k), cached(v), config_.heads, config_.kv_heads, starts_, choice());
}

Tensor trainer_hidden(const TransformerConfig& config, TrainerContext& context, const PackedSequences& sequences) {
  context.set_sequences(sequences.starts);
  return transformer_hidden(config, context, sequences.ids, sequences.positions);
}

}  // namespace motley
