// The inputs of linear layers as the products of one profile read them: quantized once, then used by every layer that
// takes them (q, k and v; gate and up). Buffers are kept from use to use.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/device_buffer.h"
#include "kernels/matmul.h"
#include "kernels/profile.h"

namespace motley::kernels {

class QuantizedRows {
 public:
  /// x [rows, cols] of the profile's output type. Where that type already has the activation format, x itself is used,
  /// and must live as long as these rows are. A row's values depend on that row alone.
  /// On a device other than the CPU for profiles that it computes (refusal_on_devices).
  void assign(const void* x, int64_t rows, int64_t cols, const NumericProfile& profile, const Device& device = {});
  const Device& device() const { return device_; }
  /// [rows, cols]: x, or floats without their fp32 scales. This and what follows is memory of the device.
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
    return (floats_.count() + factors_.count() + block_scales_.count()) * static_cast<int64_t>(sizeof(float));
  }

 private:
  /// Floats of the device; never fewer.
  class Room {
   public:
    /// For at least `count`, whose values are undefined.
    float* at_least(const Device& device, int64_t count);
    float* data() const { return static_cast<float*>(memory_.get()); }
    int64_t count() const { return memory_ ? count_ : 0; }  // none once moved from

   private:
    Device device_;
    int64_t count_ = 0;
    std::shared_ptr<void> memory_;
  };
  void assign_on_cpu(const void* x, const NumericProfile& profile);
  void assign_on_device(const void* x, const NumericProfile& profile);
  void fill_block_scales(int64_t count);

  Device device_;
  int64_t rows_ = 0, cols_ = 0;
  ConstMatrix values_;
  Quantization activation_;
  bool has_factors_ = false, has_block_scales_ = false;
  Room floats_, factors_, block_scales_;
};

/// Why linear layers of a profile can be computed on the CPU alone; empty: other devices have all that it takes.
std::string refusal_on_devices(const NumericProfile& profile);

/// Whether the profile's products sum by 128 inputs, each partial sum times an fp32 scale of its own.
bool sums_by_blocks(const NumericProfile& profile);

}  // namespace motley::kernels
