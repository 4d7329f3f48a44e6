// Where the codes of a packed matrix lie and what one of them is worth, for host and device: the layout that
// PackedMatrix describes.
#pragma once

#include <cstdint>

#include "kernels/formats.h"
#include "kernels/profile.h"

namespace motley::kernels {

inline constexpr int64_t kPanelRows = 16;
inline constexpr int64_t kPanelAlignment = 64;

/// Bytes from one panel's codes to the next's.
MOTLEY_HD constexpr int64_t panel_bytes(Format format, int64_t cols) {
  int64_t bytes = cols * kPanelRows;
  if (format == Format::fp32) bytes *= 4;
  if (format == Format::bf16 || format == Format::fp16) bytes *= 2;
  if (format == Format::e2m1) bytes = (cols + 7) / 8 * 4 * kPanelRows;
  return (bytes + kPanelAlignment - 1) / kPanelAlignment * kPanelAlignment;
}
/// Where the code of row `lane` and input k lies among a panel's 8-bit codes.
MOTLEY_HD constexpr int64_t byte_place(int64_t k, int64_t lane) {
  return k / 4 * 4 * kPanelRows + (k % 2 * kPanelRows + lane) * 2 + k % 4 / 2;
}
/// Inputs that share a block scale; 0: there are none.
MOTLEY_HD constexpr int64_t block_length(Scaling scaling) {
  return scaling == Scaling::mx32 ? 32 : scaling == Scaling::nv16 ? 16 : 0;
}
/// Bytes from one panel's block scales to the next's.
MOTLEY_HD constexpr int64_t panel_block_bytes(Scaling scaling, int64_t cols) {
  const int64_t length = block_length(scaling);
  return length == 0 ? 0 : (cols + length - 1) / length * kPanelRows;
}

/// A packed matrix [rows, cols] as a device reads it: the bytes of PackedMatrix::codes and ::block_codes, copied as
/// they are to memory aligned to 16 bytes.
struct PackedCodes {
  const uint8_t* codes = nullptr;
  const uint8_t* block_codes = nullptr;
  int64_t rows = 0, cols = 0;
  Format format = Format::fp32;
  Scaling scaling = Scaling::none;
};

/// The value of a block scale's code: ue8m0 for mx32, e4m3 for nv16.
template <Scaling S>
MOTLEY_HD float block_scale(uint8_t code) {
  static_assert(S == Scaling::mx32 || S == Scaling::nv16);
  if constexpr (S == Scaling::mx32)
    return decode<Format::ue8m0>(code);
  else
    return decode<Format::e4m3>(code);
}

/// Element (row, k) as decode_codes gives it. F and S are the matrix's own.
template <Format F, Scaling S>
MOTLEY_HD float packed_value(const PackedCodes& b, int64_t row, int64_t k) {
  const int64_t panel = row / kPanelRows, lane = row % kPanelRows;
  const uint8_t* codes = b.codes + panel * panel_bytes(F, b.cols);
  uint32_t code;
  if constexpr (F == Format::e2m1)
    code = reinterpret_cast<const uint32_t*>(codes)[k / 8 * kPanelRows + lane] >> (k % 8 * 4) & 15u;
  else if constexpr (F == Format::fp32)
    code = reinterpret_cast<const uint32_t*>(codes)[k * kPanelRows + lane];
  else if constexpr (F == Format::bf16 || F == Format::fp16)
    code = reinterpret_cast<const uint16_t*>(codes)[k * kPanelRows + lane];
  else
    code = codes[byte_place(k, lane)];
  const float value = decode<F>(code);
  if constexpr (S == Scaling::none) {
    return value;
  } else {
    const uint8_t* scales = b.block_codes + panel * panel_block_bytes(S, b.cols);
    return value * block_scale<S>(scales[k / block_length(S) * kPanelRows + lane]);
  }
}

}  // namespace motley::kernels
