// A linear layer's weight as one profile's engine holds it, and its product: activations are quantized per the
// profile, the product is computed from the quantized operands, accumulated as the profile says, rounded to its output
// format. No fp32 model with noise added.
#pragma once

#include <span>

#include "kernels/packed_operand.h"
#include "kernels/product_body.h"
#include "kernels/profile.h"
#include "kernels/quantize.h"
#include "kernels/quantized_rows.h"
#include "kernels/vendor_linear.h"

namespace motley::kernels {

/// What follows a product, with the bits of the separate kernels: y = silu(gate) * y, then y = residual + y, each
/// rounded. Both [rows, outputs] of the output type, on the product's device; null: none. The residual may be y itself.
struct LinearEpilogue {
  const void* gate = nullptr;
  const void* residual = nullptr;
};

class QuantizedLinear {
 public:
  /// weights: fp32 masters [outputs, inputs], row-major. Weight format fp32, bf16 or fp16 with Scaling::none is a plain
  /// cast. Products run on `device`. Throws std::invalid_argument for a profile that cannot be computed (fp64 output,
  /// scales across tokens, an accumulation that its formats do not have).
  QuantizedLinear(std::span<const float> weights, int64_t outputs, int64_t inputs, const NumericProfile& profile,
                  float shared_amax = 0.0f, const Device& device = {});
  /// The same of a weight that was quantized before, as `weight` gives it. Throws std::invalid_argument also where its
  /// sizes do not add up or it is not in the profile's weight format.
  QuantizedLinear(QuantizedMatrix weight, const NumericProfile& profile, const Device& device = {});
  /// Codes and scales as `quantize` made them, from whatever layout they have here.
  QuantizedMatrix weight() const;
  /// y[rows, outputs] = x W^T, of the profile's output type, for rows assigned with this profile (or one that agrees in
  /// activations, block scales and the product's body) on this device; others are refused. A row's result depends on
  /// that row alone; it has the CPU's bits but on matrix units.
  void forward(const QuantizedRows& x, void* y, const LinearEpilogue& epilogue = {}) const;
  /// The same for x[rows, inputs] of the output type.
  void forward(const void* x, int64_t rows, void* y) const;
  int64_t outputs() const { return outputs_; }
  int64_t inputs() const { return inputs_; }
  /// Memory of the codes and scales.
  int64_t bytes() const {
    return packed_.bytes() + vendor_.bytes() +
           (row_scales_.count + block_scales_.count) * static_cast<int64_t>(sizeof(float));
  }
  /// Of the codes and scales, for agreement checks.
  uint64_t fingerprint() const { return fingerprint_; }

 private:
  /// Floats of the device; null: none.
  struct Scales {
    Scales() = default;
    Scales(const Device& device, const std::vector<float>& values);
    std::vector<float> on_host(const Device& device) const;
    std::shared_ptr<const float> data;
    int64_t count = 0;
  };

  NumericProfile profile_;
  ProductBody body_;
  int64_t outputs_ = 0, inputs_ = 0;
  PackedOperand packed_;
  VendorLinear vendor_;
  float alpha_ = 1.0f;   // the tensor's fp32 scale (nv16, tensor)
  Scales row_scales_;    // channel scales, applied to the finished sum
  Scales block_scales_;  // [ceil(outputs / block_rows_), ceil(inputs / 128)]; none: no block scales
  int64_t block_rows_ = 128;
  uint64_t fingerprint_ = 0;
};

}  // namespace motley::kernels
