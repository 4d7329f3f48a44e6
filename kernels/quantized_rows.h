// The inputs of linear layers as the products of one profile read them: quantized once, then used by every layer that
// takes them (q, k and v; gate and up). Buffers are kept from use to use.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/matmul.h"
#include "kernels/profile.h"

namespace motley::kernels {

class QuantizedRows {
 public:
  /// x [rows, cols] of the profile's output type. Where that type already has the activation format, x itself is used,
  /// and must live as long as these rows are. A row's values depend on that row alone.
  void assign(const void* x, int64_t rows, int64_t cols, const NumericProfile& profile);
  /// [rows, cols]: x, or floats without their fp32 scales.
  const ConstMatrix& values() const { return values_; }
  /// [rows]: each row's own fp32 scale, a factor on the finished sum; null: there are none.
  const float* factors() const { return has_factors_ ? factors_.data() : nullptr; }
  /// [rows, ceil(cols/128)], all 1 where only the weights have block scales; only with has_block_scales().
  bool has_block_scales() const { return has_block_scales_; }
  const float* block_scales() const { return block_scales_.data(); }
  /// What the rows were quantized for: products of a profile that differs there cannot take them.
  const Quantization& activation() const { return activation_; }
  /// Memory of the buffers.
  int64_t bytes() const {
    return static_cast<int64_t>((floats_.capacity() + factors_.capacity() + block_scales_.capacity()) * sizeof(float));
  }

 private:
  ConstMatrix values_;
  Quantization activation_;
  bool has_factors_ = false, has_block_scales_ = false;
  std::vector<float> floats_, factors_, block_scales_;  // never shrink
};

/// Whether the profile's products sum by 128 inputs, each partial sum times an fp32 scale of its own.
bool sums_by_blocks(const NumericProfile& profile);

}  // namespace motley::kernels
