// One block of values: its largest magnitude, its scale, its rounding. Shared by the weight quantizers and by the
// activations of a quantized product, on host and device, so that all give the same numbers. Rules: docs/formats.md.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "kernels/formats.h"

namespace motley::kernels {

inline constexpr int64_t kFp8Block = 128, kMxBlock = 32, kNvBlock = 16;
inline constexpr float kFloatMax = 0x1.fffffep127f, kFloatMinNormal = 0x1p-126f;

/// The largest magnitude, an infinity counting as the largest float and NaN not at all.
struct BlockRange {
  float amax = 0.0f;
  bool has_nan = false;
};
MOTLEY_HD inline BlockRange block_range(const float* x, int64_t count) {
  int32_t amax = 0, largest = 0;  // as bits; GCC 12 vectorizes the signed maximum only
  for (int64_t i = 0; i < count; ++i) {
    const auto magnitude = static_cast<int32_t>(std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu);
    const int32_t number = magnitude > 0x7f800000 ? 0 : magnitude;
    amax = amax > number ? amax : number;
    largest = largest > magnitude ? largest : magnitude;
  }
  return {std::bit_cast<float>(std::min(amax, 0x7f7fffff)), largest > 0x7f800000};
}

/// amax / largest value. Magnitudes below 1e-10 count as 1e-10 (as radixark/miles does): a zero block divides by it.
MOTLEY_HD constexpr float fp32_scale(float amax, Format format) {
  return std::max(amax, 1e-10f) / largest_value(format);
}

/// The shared exponent of MX: floor(log2 amax) - emax of the element, at least -127.
MOTLEY_HD constexpr uint8_t mx_scale(BlockRange range, Format format) {
  if (range.has_nan) return 0xff;
  const int emax = static_cast<int>(std::bit_cast<uint32_t>(largest_value(format)) >> 23) - 127;
  return static_cast<uint8_t>(std::max(0, static_cast<int>(ue8m0_from_float(range.amax)) - emax));
}

/// The fp32 scale of an NVFP4 tensor: the largest block's scale becomes 448, its largest element 6. Never subnormal, so
/// that a block scale times it is never 0.
MOTLEY_HD constexpr float nv_tensor_scale(float amax) {
  const float scale = amax / (448.0f * 6.0f);
  return amax == 0.0f ? 1.0f : scale > kFloatMinNormal ? scale : kFloatMinNormal;
}

/// y = x / divisor rounded to F, decoded. May be in place.
template <Format F>
MOTLEY_HD void round_scaled(float* y, const float* x, int64_t count, float divisor) {
  for (int64_t i = 0; i < count; ++i) y[i] = rounded<F>(x[i] / divisor);
}

struct NvBlock {
  uint8_t scale = 0;                       // e4m3
  std::array<float, kNvBlock> elements{};  // e2m1 values, before any scale
};
/// One candidate: amax mapped to `target` (6 or 4). A nonzero block's scale is at least the smallest e4m3 value, at
/// most 448; then elements are divided by the rounded scale.
MOTLEY_HD inline void nv_candidate(NvBlock& block, const float* x, float amax, float tensor_scale, float target) {
  block.scale = std::max<uint8_t>(1, e4m3_from_float(amax / target / tensor_scale));
  const float divisor = e4m3_to_float(block.scale) * tensor_scale;
  round_scaled<Format::e2m1>(block.elements.data(), x, kNvBlock, divisor);
}
/// Squared error of a candidate's values, in double: float would overflow on large blocks.
MOTLEY_HD inline double nv_error(const float* x, const NvBlock& block, float tensor_scale) {
  const float scale = e4m3_to_float(block.scale);
  std::array<double, kNvBlock> squares;
  for (int64_t i = 0; i < kNvBlock; ++i) {
    const double d = static_cast<double>(x[i]) - block.elements[i] * scale * tensor_scale;
    squares[i] = d * d;
  }
  double sum = 0.0;
  for (const double square : squares) sum += square;
  return sum;
}
/// x[16]. A zero block has scale 0; a block with NaN has scale NaN and decodes as NaN. With four_over_six the candidate
/// of lower squared error wins, the map to 6 in a tie; a map to 4 whose scale is clamped at 448 competes as it is.
MOTLEY_HD inline NvBlock nv_encode(const float* x, float tensor_scale, bool four_over_six) {
  NvBlock block;
  const BlockRange range = block_range(x, kNvBlock);
  if (range.has_nan) {
    block.scale = 0x7f;
  } else if (range.amax == 0.0f) {
    std::copy_n(x, kNvBlock, block.elements.begin());
  } else {
    nv_candidate(block, x, range.amax, tensor_scale, 6.0f);
    if (!four_over_six) return block;
    NvBlock to_four;
    nv_candidate(to_four, x, range.amax, tensor_scale, 4.0f);
    if (nv_error(x, to_four, tensor_scale) < nv_error(x, block, tensor_scale)) return to_four;
  }
  return block;
}

}  // namespace motley::kernels
