// Every differentiable op. Each checks its operands, calls a kernel and records its backward pass; each runs in fp32,
// bf16, fp16 and, for gradient checks and the audit, in float64.
#pragma once

#include "kernels/head.h"
#include "tensor/tensor.h"

namespace motley {

/// What products and attention of an op promise on a device: the CPU's bits, or nothing, so that the fastest kernel is
/// taken (kernels/product_body.h, kernels/vendor.h). On the CPU both are the same.
enum class Kernels : uint8_t { invariant, vendor };

Tensor cast(const Tensor& x, DType dtype);                            // rounded once; the gradient is cast back
Tensor add(const Tensor& a, const Tensor& b);                         // equal shapes
Tensor mul(const Tensor& a, const Tensor& b);                         // equal shapes
Tensor sum(const Tensor& x);                                          // [1], in the compute type
Tensor embedding(const Tensor& table, std::span<const int32_t> ids);  // [V, D] -> [rows, D]
Tensor gather_rows(const Tensor& x, std::span<const int64_t> rows);   // [R, D] -> [rows, D]
Tensor rms_norm(const Tensor& x, const Tensor& gain, double eps);     // over the last dimension
/// [R, K], [N, K] -> [R, N] in x's type; the weight may be of another type, unless one of them is fp64.
Tensor linear(const Tensor& x, const Tensor& weight, int64_t k_tile = 0, Kernels choice = Kernels::invariant);
/// residual + linear(x, weight), each rounded to x's type: the bits of add and linear, with no tensor between them.
Tensor linear_added(const Tensor& x, const Tensor& weight, const Tensor& residual, int64_t k_tile = 0,
                    Kernels choice = Kernels::invariant);
Tensor silu_mul(const Tensor& gate, const Tensor& up);
/// What a layer's first half begins with: gain [width] of x's type, weights [outputs, width] each.
struct NormedLinears {
  Tensor gain;
  std::vector<Tensor> weights;
  double eps = 1e-6;
  int64_t k_tile = 0;  // of the products
  Kernels choice = Kernels::invariant;
};
/// linear(n, weight) for each weight, with n = rms_norm(x): [rows, outputs] each, with the bits of these ops, gradients
/// included. On the CPU it goes by blocks of rows and keeps nothing of n.
std::vector<Tensor> normed_linears(const Tensor& x, const NormedLinears& layer);
/// The weights of a layer's second half: gain [width] of x's type, gate and up [inner, width], down [width, inner].
struct FeedForward {
  Tensor gain, gate, up, down;
  double eps = 1e-6;   // of the norm
  int64_t k_tile = 0;  // of the three products
  Kernels choice = Kernels::invariant;
};
/// x [rows, width] + down(silu(gate(n)) * up(n)) with n = rms_norm(x): the bits of rms_norm, linear, silu_mul and
/// linear_added one after the other, gradients included (where x has no other use, whose gradient would come between).
/// On the CPU it goes by blocks of rows; of what lies between, only the results of gate and up are kept for the
/// backward pass.
Tensor feed_forward(const Tensor& x, const FeedForward& layer);
/// x rounded to the nearest value of `format` times `scale`, gradient passed straight through (a trainer rounds K and V
/// as its sampler's cache does).
Tensor round_values(const Tensor& x, kernels::Format format, double scale);

/// Cosines and sines of every position, [positions, head_dim / 2] in the compute type, computed in double.
struct RopeTable {
  Tensor cosines, sines;
  RopeTable() = default;
  RopeTable(int64_t positions, int64_t head_dim, double theta, DType compute, const Device& device = {});
};
Tensor rope(const Tensor& x, std::span<const int32_t> positions, int64_t heads, const RopeTable& table);
/// The same in x's own memory, if nobody else holds it: x may not be read afterwards.
Tensor rope_in_place(Tensor x, std::span<const int32_t> positions, int64_t heads, const RopeTable& table);
/// Packed causal attention: sequence s owns rows [starts[s], starts[s+1]).
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, int64_t heads, int64_t kv_heads,
                 std::span<const int32_t> starts, Kernels choice = Kernels::invariant);

/// The head op (kernels/head.h). Lists own their memory; an empty `candidate_offsets` means the whole vocabulary.
struct HeadQuery {
  double temperature = 1.0;
  std::vector<int64_t> selected_offsets;  // [rows + 1]
  std::vector<int32_t> selected_ids;
  std::vector<int64_t> candidate_offsets;  // [rows + 1] or empty
  std::vector<int32_t> candidate_ids;      // ascending within a row
  /// Neither entropies nor the mass outside, which cost an exponential a logit each: both results are then 0.
  bool log_p_only = false;
  Kernels choice = Kernels::invariant;
};
struct HeadResult {
  Tensor log_p;        // [selected], differentiable
  Tensor entropy;      // [rows], differentiable
  Tensor log_outside;  // [rows], no gradient
  Tensor lse;          // [rows], no gradient
  Tensor both;         // [selected + rows]: log_p and entropy are slices of it, and its node is the head's
};
/// Checks every id against the vocabulary, and every selected id against its row's candidates.
HeadResult selected_log_probs(const Tensor& hidden, const Tensor& weight, std::shared_ptr<const HeadQuery> query);
/// Propagates cotangents through a head's two differentiable results at once (one recomputation of the logits). An
/// undefined `d_entropy` is zero.
void head_backward(const HeadResult& result, const Tensor& d_log_p, const Tensor& d_entropy);

}  // namespace motley
