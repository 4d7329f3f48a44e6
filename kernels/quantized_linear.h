// A linear layer's weight as one profile's engine holds it, and its product: activations are quantized per the
// profile, the product is computed from the quantized operands, accumulated as the profile says, rounded to its output
// format. No fp32 model with noise added.
#pragma once

#include "kernels/matmul.h"
#include "kernels/profile.h"
#include "kernels/quantize.h"

namespace motley::kernels {

class QuantizedLinear {
 public:
  /// weights: fp32 masters [outputs, inputs], row-major. Weight format fp32, bf16 or fp16 with Scaling::none is a plain
  /// cast. Throws std::invalid_argument for a profile that cannot be computed (fp64 output, scales across tokens).
  QuantizedLinear(std::span<const float> weights, int64_t outputs, int64_t inputs, const NumericProfile& profile,
                  float shared_amax = 0.0f);
  /// y[rows, outputs] = x[rows, inputs] W^T; x and y are of the profile's output type. A row's result depends on that
  /// row alone.
  void forward(const void* x, int64_t rows, void* y) const;
  int64_t outputs() const { return outputs_; }
  int64_t inputs() const { return inputs_; }
  /// xxHash-free 64-bit fingerprint of codes and scales (kernels::mix over words), for agreement checks.
  uint64_t fingerprint() const { return fingerprint_; }

 private:
  void forward_chunk(const void* x, int64_t rows, void* y) const;

  NumericProfile profile_;
  int64_t outputs_ = 0, inputs_ = 0;
  PackedMatrix packed_;
  float alpha_ = 1.0f;               // the tensor's fp32 scale (nv16, tensor)
  std::vector<float> row_scales_;    // channel scales, applied to the finished sum
  std::vector<float> block_scales_;  // [ceil(outputs / block_rows_), ceil(inputs / 128)]; empty: no block scales
  int64_t block_rows_ = 128;
  bool activations_as_they_are_ = true;  // x's own type already has the activation format
  bool row_factors_ = false;             // activations have an fp32 scale per token, for the finished sum
  uint64_t fingerprint_ = 0;
};

}  // namespace motley::kernels
