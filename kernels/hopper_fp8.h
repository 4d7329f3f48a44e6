// Products accumulated as by Hopper's fp8 tensor cores: a model (docs/formats.md gives it at length, with sources).
//
// A step takes 32 products and the accumulator. All are aligned to the largest exponent E among them (a product's is
// the sum of its operands'; zeros do not count) and truncated towards zero at 2^(E - 13); their sum is exact, and the
// new accumulator is it truncated to 14 bits. After each k_tile products the accumulator is added to a sum in fp32
// (with block scales by one fused multiply-add) and starts from zero again; k_tile 0: only at the end.
#pragma once

#include "kernels/matmul.h"

namespace motley::kernels {

inline constexpr int64_t kHopperStep = 32;  // k of one wgmma instruction for 8-bit operands
inline constexpr int kHopperFraction = 13;  // bits below the largest exponent, and below the accumulator's own

/// As `matmul` for packed e4m3 or e5m2 weights without mx scales and row-major fp32 A that holds such values, without
/// accumulate, the finish included. k_tile is a multiple of 32. A row's bits depend on that row alone, and are the same
/// on every device.
namespace cpu {
void hopper_fp8_product(const MatmulArgs& args);
}  // namespace cpu
namespace cuda {
void hopper_fp8_product(const MatmulArgs& args);
}  // namespace cuda
namespace emulated {
void hopper_fp8_product(const MatmulArgs& args);
}  // namespace emulated
}  // namespace motley::kernels
