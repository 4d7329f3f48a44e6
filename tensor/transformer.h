// A Llama / Qwen3-style decoder: embedding, RMSNorm, rotary embedding, grouped-query attention with optional QK-norm,
// SwiGLU, tied or untied head. One layer loop serves trainer and samplers, so that the bitwise profile is a matter of
// structure: they differ only in the ForwardContext that they pass.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kernels/philox.h"
#include "kernels/profile.h"
#include "tensor/ops.h"

namespace motley {

struct TransformerConfig {
  int64_t vocabulary = 0, layers = 4, width = 128, heads = 4, kv_heads = 2;
  int64_t head_dim = 0;  // 0: width / heads
  int64_t ffn = 0;       // 0: 8/3 width, rounded up to a multiple of 32
  double rope_theta = 10000.0, norm_eps = 1e-6;
  bool qk_norm = false, tied_head = true;
  int64_t max_positions = 512;
  /// Fills in the zeros; throws std::invalid_argument naming the field that is impossible.
  TransformerConfig resolved() const;
  bool operator==(const TransformerConfig&) const = default;
};

/// The matrices of a layer that a sampler quantizes.
enum class Projection : uint8_t { q, k, v, o, gate, up, down };
inline constexpr Projection kProjections[] = {Projection::q,    Projection::k,  Projection::v,   Projection::o,
                                              Projection::gate, Projection::up, Projection::down};

/// Parameters by Hugging Face name (model.layers.0.self_attn.q_proj.weight, ...), in file order; masters are f32 (or
/// f64).
class Parameters {
 public:
  /// Normal initialization with counter-based numbers: the same seed gives the same bits.
  static Parameters initialize(const TransformerConfig& config, uint64_t seed, DType dtype = DType::f32);
  static Parameters zeros(const TransformerConfig& config, DType dtype = DType::f32);
  /// Names and shapes that `config` asks for, in order.
  static std::vector<std::pair<std::string, Shape>> layout(const TransformerConfig& config);

  Tensor& at(const std::string& name);
  const Tensor& at(const std::string& name) const;
  const std::vector<std::string>& names() const { return names_; }
  int64_t count() const;  // numbers in all tensors together
  Parameters clone() const;
  Parameters clone(const Device& device) const;  // a copy there
  /// Of all of them; the CPU if there are none.
  const Device& device() const;
  void set_requires_grad(bool wanted);
  void zero_grad();
  /// A 64-bit fingerprint of every tensor's bytes, by name.
  std::map<std::string, uint64_t> fingerprints() const;

 private:
  std::vector<std::string> names_;
  std::map<std::string, Tensor> tensors_;
};
/// The full name of its weight: model.layers.<layer>.self_attn.q_proj.weight and so on.
std::string projection_name(int64_t layer, Projection projection);
/// A 64-bit fingerprint of type, shape and bytes.
uint64_t fingerprint(const Tensor& tensor);

/// Where trainer and sampler differ: how a product is computed, which weights norms and embedding use, how K and V are
/// kept and read.
class ForwardContext {
 public:
  virtual ~ForwardContext() = default;
  virtual Tensor project(const Tensor& x, int64_t layer, Projection projection) = 0;
  /// silu_mul(gate, project(x)) and add(residual, project(x)): a context may do either in one pass, with the same bits.
  virtual Tensor project_gated(const Tensor& x, int64_t layer, Projection projection, const Tensor& gate);
  virtual Tensor project_added(const Tensor& x, int64_t layer, Projection projection, const Tensor& residual);
  /// q, k and v of norm(x, gain, eps), before rotation.
  virtual std::vector<Tensor> project_qkv(const Tensor& x, const std::string& gain, double eps, int64_t layer);
  /// x + down(silu_mul(gate(n), up(n))) with n = norm(x, gain, eps), the second half of a layer.
  virtual Tensor feed_forward(const Tensor& x, const std::string& gain, double eps, int64_t layer);
  /// layer(x); a trainer may run it a second time in its backward pass instead of keeping what it made.
  virtual Tensor run_layer(const Tensor& x, const std::function<Tensor(const Tensor&)>& layer);
  virtual Tensor parameter(const std::string& name) = 0;  // in the profile's output type
  /// rms_norm over the last dimension, with the parameter `gain`.
  virtual Tensor norm(const Tensor& x, const std::string& gain, double eps);
  /// q [rows, heads * head_dim], k and v [rows, kv_heads * head_dim], after rotation.
  virtual Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, int64_t layer) = 0;
  virtual const RopeTable& rope_table() = 0;
};
/// The hidden states [rows, width] of tokens `ids` at `positions` after the last layer, and the norm that comes then.
Tensor transformer_layers(const TransformerConfig& config, ForwardContext& context, std::span<const int32_t> ids,
                          std::span<const int32_t> positions);
Tensor final_norm(const TransformerConfig& config, ForwardContext& context, const Tensor& hidden);
/// Both.
Tensor transformer_hidden(const TransformerConfig& config, ForwardContext& context, std::span<const int32_t> ids,
                          std::span<const int32_t> positions);

/// Packed sequences: sequence s owns ids [starts[s], starts[s+1]); positions count from 0 in each.
struct PackedSequences {
  std::vector<int32_t> ids, positions, starts{0};
  void append(std::span<const int32_t> sequence);
};

/// The trainer's pass: parameters are cast from their masters to the profile's output type, once per trainer pass.
class TrainerContext final : public ForwardContext {
 public:
  /// A float64 `profile.output` runs everything in double and rounds nothing, K and V included. Weight formats of the
  /// profile other than a plain type are not trainable here and refused with ContractError.
  TrainerContext(const TransformerConfig& config, const Parameters& parameters, const kernels::NumericProfile& profile,
                 const RopeTable& table);
  void set_sequences(std::span<const int32_t> starts) { starts_.assign(starts.begin(), starts.end()); }
  /// Keeps each layer's input only and computes the rest again in the backward pass, for which this context and the
  /// positions of the pass must still be there. Changes no bit.
  void set_checkpointing(bool wanted) { checkpointing_ = wanted; }
  /// Of all its products and of attention; the head's are its caller's (HeadQuery::choice).
  Kernels choice() const { return profile_.invariant ? Kernels::invariant : Kernels::vendor; }
  Tensor run_layer(const Tensor& x, const std::function<Tensor(const Tensor&)>& layer) override;
  Tensor project_added(const Tensor& x, int64_t layer, Projection projection, const Tensor& residual) override;
  std::vector<Tensor> project_qkv(const Tensor& x, const std::string& gain, double eps, int64_t layer) override;
  Tensor feed_forward(const Tensor& x, const std::string& gain, double eps, int64_t layer) override;
  Tensor project(const Tensor& x, int64_t layer, Projection projection) override;
  Tensor parameter(const std::string& name) override;
  Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, int64_t layer) override;
  const RopeTable& rope_table() override { return table_; }

 private:
  const TransformerConfig& config_;
  const Parameters& parameters_;
  const kernels::NumericProfile& profile_;
  const RopeTable& table_;
  Tensor projection_weight(int64_t layer, Projection projection);

  std::vector<int32_t> starts_;
  bool checkpointing_ = false;
  std::map<std::string, Tensor> cast_;
};
Tensor trainer_hidden(const TransformerConfig& config, TrainerContext& context, const PackedSequences& sequences);
/// The parameter that is the head's weight [vocabulary, width], tied or not.
std::string head_weight_name(const TransformerConfig& config);

}  // namespace motley
