// The inputs of linear layers as the products of one profile read them: quantized once, then used by every layer that
// takes them (q, k and v; gate and up). Buffers are kept from use to use.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/device_buffer.h"
#include "kernels/matmul.h"
#include "kernels/product_body.h"
#include "kernels/profile.h"
#include "kernels/vendor_codes.h"

namespace motley::kernels {

class QuantizedRows {
 public:
  /// x [rows, cols] of the profile's output type. Where that type already has the activation format, x itself is used,
  /// and must live as long as these rows are. A row's values depend on that row alone.
  void assign(const void* x, int64_t rows, int64_t cols, const NumericProfile& profile, const Device& device = {});
  const Device& device() const { return device_; }
  /// The product that reads them.
  ProductBody body() const { return body_; }
  /// [rows, cols]: x, or values without their fp32 scales, as floats for the chain and as unit_rows for matrix units,
  /// exact in either. This and what follows is memory of the device.
  const ConstMatrix& values() const { return values_; }
  /// [rows]: each row's own fp32 scale, a factor on the finished sum; null: there are none.
  const float* factors() const { return has_factors_ ? factors_.floats() : nullptr; }
  /// [rows, ceil(cols/128)], all 1 where only the weights have block scales; only with has_block_scales().
  bool has_block_scales() const { return has_block_scales_; }
  const float* block_scales() const { return own_block_scales_ ? block_scales_.floats() : ones_.floats(); }
  /// The same as the vendor's product of the profile reads them, where vendor_product_of_rows names one of codes.
  const VendorCodes& codes() const { return codes_; }
  /// What the rows were quantized for: products of a profile that differs there cannot take them.
  const Quantization& activation() const { return activation_; }
  /// Memory of the buffers.
  int64_t bytes() const {
    return floats_.bytes() + halves_.bytes() + factors_.bytes() + block_scales_.bytes() + ones_.bytes() +
           code_room_.bytes() + code_scales_.bytes() + placed_scales_.bytes();
  }

 private:
  /// Memory of the device; never less.
  class Room {
   public:
    /// For at least `count` elements of so many bytes, whose values are undefined. True: it is new.
    bool hold(const Device& device, int64_t count, int64_t element_bytes);
    void* data() const { return memory_.get(); }
    float* floats() const { return static_cast<float*>(memory_.get()); }
    int64_t bytes() const { return memory_ ? bytes_ : 0; }  // none once moved from

   private:
    Device device_;
    int64_t bytes_ = 0;
    std::shared_ptr<void> memory_;
  };
  void assign_on_cpu(const void* x, const NumericProfile& profile);
  void assign_on_device(const void* x, const NumericProfile& profile);
  void hold_block_scales();
  void make_codes(VendorProduct product);
  void read_from(const Room& room, DType dtype);

  Device device_;
  ProductBody body_ = ProductBody::chain;
  int64_t rows_ = 0, cols_ = 0;
  ConstMatrix values_;
  Quantization activation_;
  bool has_factors_ = false, has_block_scales_ = false, own_block_scales_ = false;
  Room floats_, halves_, factors_, block_scales_, ones_;
  VendorCodes codes_;
  Room code_room_, code_scales_, placed_scales_;
};

/// The vendor's product that the profile's rows and weights are made for on the device; none: it has none, the profile
/// asks for none (kernels = "vendor"), or activations are no codes of a kind that devices make.
VendorProduct vendor_product_of_rows(const NumericProfile& profile, const Device& device);

/// Whether the profile's products sum by 128 inputs, each partial sum times an fp32 scale of its own.
bool sums_by_blocks(const NumericProfile& profile);

}  // namespace motley::kernels
