// The sums of a tile of C before the finish: what they start from, and how the partial sum of a k_tile joins them. Both
// product kernels use these, so that a row has the same bits whichever of them computes it.
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/matmul.h"

namespace motley::kernels::cpu {

/// The rows and columns of C that a tile covers.
struct TilePlace {
  int64_t row, rows, col, cols;
};

/// tile [Rows][Cols] = C with accumulate, else zero; zero outside C too.
template <int64_t Rows, int64_t Cols>
inline void start_tile(const MatmulArgs& args, const TilePlace& at, float* tile) {
  std::fill_n(tile, Rows * Cols, 0.0f);
  if (!args.accumulate) return;
  for (int64_t r = 0; r < at.rows; ++r) {
    const float* in =
        static_cast<const float*>(args.c.data) + (at.row + r) * args.c.row_stride + at.col * args.c.col_stride;
    for (int64_t c = 0; c < at.cols; ++c) tile[r * Cols + c] = in[c * args.c.col_stride];
  }
}

/// total += partial, the products of one k_tile that starts at column k of A; with block scales
/// total = fma(partial, a_scale * b_scale, total). Both [Rows][Cols].
template <int64_t Rows, int64_t Cols>
inline void add_partial(const MatmulArgs& args, const TilePlace& at, int64_t k, const float* partial, float* total) {
  if (args.a_scales == nullptr) {
    for (int64_t i = 0; i < Rows * Cols; ++i) total[i] += partial[i];
    return;
  }
  const int64_t blocks = (args.a.cols + 127) / 128, block = k / 128;
  const float* b_scale = args.b_scales + at.col / args.b_scale_rows * blocks + block;
  int64_t end = args.b_scale_rows - at.col % args.b_scale_rows;  // of the columns that share a scale
  for (int64_t begin = 0; begin < at.cols; begin = end, end += args.b_scale_rows, b_scale += blocks) {
    const int64_t count = std::min(end, at.cols) - begin;
    for (int64_t r = 0; r < at.rows; ++r) {
      const float scale = args.a_scales[(at.row + r) * blocks + block] * *b_scale;
      const float* in = partial + r * Cols + begin;
      float* out = total + r * Cols + begin;
      for (int64_t c = 0; c < count; ++c) out[c] = std::fma(in[c], scale, out[c]);
    }
  }
}

}  // namespace motley::kernels::cpu
