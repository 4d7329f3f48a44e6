// A linear layer's weight as cuBLASLt reads it, beside the one that our own kernels read.
#pragma once

#include "kernels/device_buffer.h"
#include "kernels/quantized_rows.h"
#include "kernels/vendor.h"

namespace motley::kernels {

/// Empty where no product of the vendor's serves the profile on the device, or the weight's shape.
class VendorLinear {
 public:
  VendorLinear() = default;
  VendorLinear(const QuantizedMatrix& weight, const NumericProfile& profile, const Device& device);
  /// C of x W^T with the finish of `args`, whose first operand is x's values. False: nothing was computed.
  bool forward(const QuantizedRows& x, const MatmulArgs& args) const;
  /// Memory of the device.
  int64_t bytes() const { return bytes_; }

 private:
  VendorProduct product_ = VendorProduct::none;
  VendorCodes codes_;
  DType dtype_ = DType::f32;  // plain
  int64_t bytes_ = 0;
  std::shared_ptr<const uint8_t> code_bytes_, scale_bytes_;
};

}  // namespace motley::kernels
