// A packed matrix where the products of a device read it.
#pragma once

#include "kernels/device_buffer.h"
#include "kernels/matmul.h"
#include "kernels/packed_device.h"

namespace motley::kernels {

/// Copies share the device's memory.
class PackedOperand {
 public:
  PackedOperand() = default;
  /// Throws what allocate_on does.
  PackedOperand(PackedMatrix packed, const Device& device);
  /// unpack of it, from its device.
  QuantizedMatrix unpack(const Quantization& how) const;
  /// Makes it the second operand of a product on its device.
  void put_into(MatmulArgs& args) const;
  const Device& device() const { return device_; }
  /// Of memory that the matrix holds.
  int64_t bytes() const { return bytes_; }

 private:
  Device device_;
  int64_t bytes_ = 0;
  PackedMatrix packed_;       // on the CPU
  PackedOnDevice on_device_;  // elsewhere
};

}  // namespace motley::kernels
