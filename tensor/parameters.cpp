#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "tensor/transformer.h"

namespace motley {
namespace {

/// FNV-1a: a parameter's stream of numbers depends on its name, not on its place among the others.
uint64_t hash_name(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

bool ends_with_any(const std::string& name, std::initializer_list<std::string_view> ends) {
  for (const std::string_view end : ends) {
    if (name.ends_with(end)) return true;
  }
  return false;
}

/// Projections keep the size of what they read; those that write to the residual stream share its growth between the
/// layers. Embedding and head are small, so that the first logits are.
double initial_deviation(const std::string& name, const Shape& shape, const TransformerConfig& config) {
  const double fan_in = 1.0 / std::sqrt(static_cast<double>(shape[1]));
  if (ends_with_any(name, {"embed_tokens.weight", "lm_head.weight"})) return 0.5 * fan_in;
  if (ends_with_any(name, {"o_proj.weight", "down_proj.weight"})) {
    return fan_in / std::sqrt(2.0 * static_cast<double>(config.layers));
  }
  return fan_in;
}

}  // namespace

TransformerConfig TransformerConfig::resolved() const {
  const auto refuse = [](const std::string& why) { throw std::invalid_argument("model." + why); };
  const auto positive = [&](const char* field, int64_t value) {
    if (value < 1) refuse(std::string(field) + " must be at least 1: got " + std::to_string(value));
  };
  positive("vocabulary", vocabulary);
  positive("layers", layers);
  positive("width", width);
  positive("heads", heads);
  positive("kv_heads", kv_heads);
  positive("max_positions", max_positions);
  TransformerConfig result = *this;
  if (head_dim == 0) {
    if (width % heads != 0) {
      refuse("width " + std::to_string(width) + " is no multiple of heads " + std::to_string(heads) +
             ": set head_dim, or change one of them");
    }
    result.head_dim = width / heads;
  }
  if (ffn == 0) result.ffn = (8 * width / 3 + 31) / 32 * 32;
  positive("head_dim", result.head_dim);
  positive("ffn", result.ffn);
  if (result.head_dim % 2 != 0) refuse("head_dim must be even: got " + std::to_string(result.head_dim));
  if (heads % kv_heads != 0) {
    refuse("heads " + std::to_string(heads) + " is no multiple of kv_heads " + std::to_string(kv_heads));
  }
  if (!(rope_theta > 0.0) || !std::isfinite(rope_theta)) refuse("rope_theta must be positive");
  if (!(norm_eps >= 0.0) || !std::isfinite(norm_eps)) refuse("norm_eps must not be negative");
  return result;
}

std::string projection_name(int64_t layer, Projection projection) {
  static constexpr const char* kNames[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                           "self_attn.o_proj", "mlp.gate_proj",    "mlp.up_proj",
                                           "mlp.down_proj"};
  return "model.layers." + std::to_string(layer) + "." + kNames[static_cast<size_t>(projection)] + ".weight";
}

std::string head_weight_name(const TransformerConfig& config) {
  return config.tied_head ? "model.embed_tokens.weight" : "lm_head.weight";
}

std::vector<std::pair<std::string, Shape>> Parameters::layout(const TransformerConfig& given) {
  const TransformerConfig config = given.resolved();
  const int64_t width = config.width, q_rows = config.heads * config.head_dim;
  const int64_t kv_rows = config.kv_heads * config.head_dim;
  std::vector<std::pair<std::string, Shape>> entries{{"model.embed_tokens.weight", {config.vocabulary, width}}};
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    const auto projection = [&](Projection which, int64_t rows, int64_t cols) {
      entries.emplace_back(projection_name(layer, which), Shape{rows, cols});
    };
    entries.emplace_back(prefix + "input_layernorm.weight", Shape{width});
    projection(Projection::q, q_rows, width);
    projection(Projection::k, kv_rows, width);
    projection(Projection::v, kv_rows, width);
    projection(Projection::o, width, q_rows);
    if (config.qk_norm) {
      entries.emplace_back(prefix + "self_attn.q_norm.weight", Shape{config.head_dim});
      entries.emplace_back(prefix + "self_attn.k_norm.weight", Shape{config.head_dim});
    }
    entries.emplace_back(prefix + "post_attention_layernorm.weight", Shape{width});
    projection(Projection::gate, config.ffn, width);
    projection(Projection::up, config.ffn, width);
    projection(Projection::down, width, config.ffn);
  }
  entries.emplace_back("model.norm.weight", Shape{width});
  if (!config.tied_head) entries.emplace_back("lm_head.weight", Shape{config.vocabulary, width});
  return entries;
}

Parameters Parameters::zeros(const TransformerConfig& config, DType dtype) {
  Parameters result;
  for (auto& [name, shape] : layout(config)) {
    result.names_.push_back(name);
    result.tensors_.emplace(name, Tensor::zeros(shape, dtype));
  }
  return result;
}

Parameters Parameters::initialize(const TransformerConfig& config, uint64_t seed, DType dtype) {
  Parameters result = zeros(config, dtype);
  for (const std::string& name : result.names_) {
    Tensor& tensor = result.tensors_.at(name);
    std::vector<double> values(static_cast<size_t>(tensor.numel()), 1.0);
    if (tensor.shape().size() == 2) {
      kernels::RandomStream stream({seed, kernels::Purpose::init, hash_name(name)});
      const double deviation = initial_deviation(name, tensor.shape(), config);
      for (double& value : values) value = deviation * stream.normal();
    }
    tensor = Tensor::from(std::span<const double>(values), tensor.shape(), dtype);
  }
  return result;
}

const Tensor& Parameters::at(const std::string& name) const {
  const auto found = tensors_.find(name);
  MOTLEY_CHECK(found != tensors_.end(), "parameters", "no parameter is called " + name);
  return found->second;
}

Tensor& Parameters::at(const std::string& name) {
  return const_cast<Tensor&>(static_cast<const Parameters&>(*this).at(name));
}

int64_t Parameters::count() const {
  int64_t total = 0;
  for (const auto& [name, tensor] : tensors_) total += tensor.numel();
  return total;
}

const Device& Parameters::device() const {
  static const Device host;
  return tensors_.empty() ? host : tensors_.begin()->second.device();
}

Parameters Parameters::clone() const { return clone(device()); }

Parameters Parameters::clone(const Device& device) const {
  Parameters copy;
  copy.names_ = names_;
  for (const auto& [name, tensor] : tensors_) copy.tensors_.emplace(name, tensor.clone(device));
  return copy;
}

void Parameters::set_requires_grad(bool wanted) {
  for (auto& [name, tensor] : tensors_) tensor.set_requires_grad(wanted);
}

void Parameters::zero_grad() {
  for (auto& [name, tensor] : tensors_) tensor.zero_grad();
}

uint64_t fingerprint(const Tensor& tensor) {
  uint64_t hash = kernels::mix(static_cast<uint64_t>(tensor.dtype()), tensor.shape().size());
  for (const int64_t size : tensor.shape()) hash = kernels::mix(hash, static_cast<uint64_t>(size));
  const Tensor here = tensor.detach().to(Device{});
  const auto* bytes = static_cast<const std::byte*>(here.raw());
  const size_t count = static_cast<size_t>(tensor.numel()) * kernels::dtype_size(tensor.dtype());
  for (size_t at = 0; at < count; at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + at, std::min(sizeof word, count - at));
    hash = kernels::mix(hash, word);
  }
  return hash;
}

std::map<std::string, uint64_t> Parameters::fingerprints() const {
  std::map<std::string, uint64_t> result;
  for (const auto& [name, tensor] : tensors_) result.emplace(name, fingerprint(tensor));
  return result;
}

}  // namespace motley
