// Which of its products a device uses for the linear layers of a profile.
#pragma once

#include <cstdint>

#include "kernels/device.h"
#include "kernels/matmul.h"
#include "kernels/profile.h"

namespace motley::kernels {

enum class ProductBody : uint8_t {
  chain,         // matmul: the CPU's bits
  matrix_units,  // matmul_units: bits of its own, within its bound
  vendor,        // of plain operands: cuBLASLt, where it is and takes them
  hopper_fp8,    // hopper_fp8_product, a model of an accumulation: the CPU's bits
};

/// A modelled accumulation: its model. Plain profiles promise the CPU's bits on every device: chain. Profiles that
/// stand for an accelerator, and those with vendor kernels, use matrix units on a device where these compute the
/// profile's operands exactly; on the CPU, and with fp32 operands or fp16 rows by mx weights: chain.
ProductBody product_body(const NumericProfile& profile, const Device& device);
const char* product_body_name(ProductBody body);

/// The type of A's elements on matrix units: bf16, which holds every quantized activation without its fp32 scale, or
/// fp16 for fp16 activations.
DType unit_rows(const NumericProfile& profile);

/// C by that body where the operands lie. For what `vendor` does not take it is matrix units where these do, then the
/// chain, which alone is there on the CPU.
void compute_product(ProductBody body, const Device& device, const MatmulArgs& args);
/// The same on the device of that kind that this thread has selected.
void compute_here(ProductBody body, DeviceKind kind, const MatmulArgs& args);

}  // namespace motley::kernels
