// The operations of a transformer's forward pass in which two numeric profiles can differ, and an assignment of each,
// per layer, to one of the two profiles.
//
// Every rounding belongs to exactly one operation: the one whose result it is. A product owns its weight's format, the
// quantization of its inputs beyond the output type, and the rounding of its sum; it does not round its inputs to the
// output type again, which whoever made them has done. Hence no rounding is counted twice when operations are switched
// alone, and all of them together are the profile itself, bit for bit.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/profile.h"

namespace motley::algos::mismatch {

/// In the order of the forward pass, which is the order of cumulative switching; the two that concern all products
/// last.
enum class Operation : uint8_t {
  embedding,  // the table
  norm,       // gains, and results of all RMS norms (q and k norms and the final one too)
  q,          // projections: weight format, quantized inputs, rounding of the sum
  k,
  v,
  rope,              // rounding of rotated q and k
  kv_cache,          // K and V in the cache's format, where that is narrower than the output type
  attention_scores,  // fp32 in every profile
  softmax,           // fp32 in every profile
  attention,         // rounding of attention's result
  o,
  residual,  // rounding of the residual stream's sums
  gate,
  up,
  silu,  // rounding of silu(gate) * up
  down,
  head,             // the output matrix; logits are fp32 in every profile
  reduction_order,  // how many products are summed in one chain (a format with block scales implies its own)
  accumulation,     // the accumulator of fp8 products; applies where their operands are fp8
};
inline constexpr int kOperations = 19;

/// All of them, in order.
const std::array<Operation, kOperations>& operations();
/// As it is shown: "kv cache", "q", ...
const char* operation_name(Operation operation);
bool is_projection(Operation operation);
/// Whether the profiles compute the operation differently at all. Where they do not, switching it changes no bit.
bool differs(Operation operation, const kernels::NumericProfile& a, const kernels::NumericProfile& b);

/// What a product of float rows computes when its formats, its order of summation and its accumulation come from three
/// profiles: a profile of fp32 output, whose result the caller rounds.
kernels::NumericProfile product_profile(const kernels::NumericProfile& formats, const kernels::NumericProfile& order,
                                        const kernels::NumericProfile& accumulation);
/// The format that K and V are rounded to beyond the output type; fp32 when they are not.
kernels::Format kv_rounding(const kernels::NumericProfile& profile);

/// Which operations are the sampler's; the others are the trainer's. Layer `layers` stands for what lies outside the
/// layers: embedding, final norm and head.
class Assignment {
 public:
  /// Everything is the trainer's.
  explicit Assignment(int64_t layers);
  bool sampler(Operation operation, int64_t layer) const { return given_[place(operation, layer)]; }
  /// In one layer, in all of them (and outside), and everything.
  void give(Operation operation, int64_t layer) { given_[place(operation, layer)] = true; }
  void give(Operation operation);
  void give_layer(int64_t layer);
  void give_all();
  int64_t layers() const { return layers_; }

 private:
  size_t place(Operation operation, int64_t layer) const {
    return static_cast<size_t>(layer) * kOperations + static_cast<size_t>(operation);
  }
  int64_t layers_;
  std::vector<bool> given_;
};

}  // namespace motley::algos::mismatch
