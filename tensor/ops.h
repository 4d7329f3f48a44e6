// Every differentiable op. Each checks its operands, calls a kernel and records its backward pass; each runs in fp32,
// bf16, fp16 and, for gradient checks and the audit, in float64.
#pragma once

#include "kernels/head.h"
#include "tensor/tensor.h"

namespace motley {

Tensor cast(const Tensor& x, DType dtype);                            // rounded once; the gradient is cast back
Tensor add(const Tensor& a, const Tensor& b);                         // equal shapes
Tensor mul(const Tensor& a, const Tensor& b);                         // equal shapes
Tensor sum(const Tensor& x);                                          // [1], in the compute type
Tensor embedding(const Tensor& table, std::span<const int32_t> ids);  // [V, D] -> [rows, D]
Tensor gather_rows(const Tensor& x, std::span<const int64_t> rows);   // [R, D] -> [rows, D]
Tensor rms_norm(const Tensor& x, const Tensor& gain, double eps);     // over the last dimension
/// [R, K], [N, K] -> [R, N] in x's type; the weight may be of another type, unless one of them is fp64.
Tensor linear(const Tensor& x, const Tensor& weight, int64_t k_tile = 0);
/// residual + linear(x, weight), each rounded to x's type: the bits of add and linear, with no tensor between them.
Tensor linear_added(const Tensor& x, const Tensor& weight, const Tensor& residual, int64_t k_tile = 0);
Tensor silu_mul(const Tensor& gate, const Tensor& up);
/// linear_added(silu_mul(gate, up), weight, residual), with its bits. What lies between is not kept: the backward pass
/// makes it again where it differentiates it.
Tensor gated_linear_added(const Tensor& gate, const Tensor& up, const Tensor& weight, const Tensor& residual,
                          int64_t k_tile = 0);
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
                 std::span<const int32_t> starts);

/// The head op (kernels/head.h). Lists own their memory; an empty `candidate_offsets` means the whole vocabulary.
struct HeadQuery {
  double temperature = 1.0;
  std::vector<int64_t> selected_offsets;  // [rows + 1]
  std::vector<int32_t> selected_ids;
  std::vector<int64_t> candidate_offsets;  // [rows + 1] or empty
  std::vector<int32_t> candidate_ids;      // ascending within a row
  /// Neither entropies nor the mass outside, which cost an exponential a logit each: both results are then 0.
  bool log_p_only = false;
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
