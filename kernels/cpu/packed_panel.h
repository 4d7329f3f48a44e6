// Panels of a PackedMatrix: where they lie, and decoding one to float.
#pragma once

#include "kernels/packed_matrix.h"

namespace motley::kernels::cpu {

constexpr int64_t kPanelRows = 16;
constexpr int64_t kPanelAlignment = 64;

/// Bytes from one panel's codes to the next's.
constexpr int64_t panel_bytes(Format format, int64_t cols) {
  int64_t bytes = cols * kPanelRows;
  if (format == Format::fp32) bytes *= 4;
  if (format == Format::bf16 || format == Format::fp16) bytes *= 2;
  if (format == Format::e2m1) bytes = (cols + 7) / 8 * 4 * kPanelRows;
  return (bytes + kPanelAlignment - 1) / kPanelAlignment * kPanelAlignment;
}
/// Inputs that share a block scale; 0: there are none.
constexpr int64_t block_length(Scaling scaling) {
  return scaling == Scaling::mx32 ? 32 : scaling == Scaling::nv16 ? 16 : 0;
}
/// Bytes from one panel's block scales to the next's.
constexpr int64_t panel_block_bytes(Scaling scaling, int64_t cols) {
  const int64_t length = block_length(scaling);
  return length == 0 ? 0 : (cols + length - 1) / length * kPanelRows;
}

/// out[depth][16] = columns [k0, k0 + depth) of the panel's rows, as decode_codes gives them (a signalling NaN may come
/// out quiet).
void decode_panel(const PackedMatrix& b, int64_t panel, int64_t k0, int64_t depth, float* out);

}  // namespace motley::kernels::cpu
