#include "kernels/cpu/matmul_pack.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <type_traits>

#include "kernels/cpu/elements.h"
#include "kernels/cpu/matmul_inner.h"
#include "kernels/cpu/transpose.h"

namespace motley::kernels {
namespace cpu {
namespace {

/// Columns [k, k + depth) of `count` rows whose elements along a column are contiguous, as out[depth][Width].
template <int Width, class T>
void pack_columns(const T* in, int64_t stride, int64_t count, int64_t depth, float* out) {
  if (count >= Width) {
    for (int64_t k = 0; k < depth; ++k)
      for (int i = 0; i < Width; ++i) out[k * Width + i] = load(in[k * stride + i]);
    return;
  }
  for (int64_t k = 0; k < depth; ++k)
    for (int i = 0; i < Width; ++i) out[k * Width + i] = i < count ? load(in[k * stride + i]) : 0.0f;
}

/// One row of `depth` elements, col_stride apart.
template <class T>
void pack_row(const T* in, int64_t col_stride, int64_t depth, float* out) {
  if (col_stride == 1) return load(out, in, depth);
  for (int64_t k = 0; k < depth; ++k) out[k] = load(in[k * col_stride]);
}

template <class T>
void pack_panel_of(const ConstMatrix& b, int64_t panel, float* out) {
  const int64_t count = std::min(kPanel, b.rows - panel * kPanel);
  const T* in = static_cast<const T*>(b.data) + panel * kPanel * b.row_stride;
  if (b.row_stride == 1 && b.col_stride != 1) return pack_columns<kPanel>(in, b.col_stride, count, b.cols, out);
  constexpr int64_t kTile = 64;
  alignas(64) float rows[kPanel][kTile + 4] = {};
  for (int64_t k = 0; k < b.cols; k += kTile) {
    const int64_t depth = std::min(kTile, b.cols - k);
    for (int64_t r = 0; r < count; ++r)
      pack_row(in + r * b.row_stride + k * b.col_stride, b.col_stride, depth, rows[r]);
    transpose16(rows[0], kTile + 4, depth, out + k * kPanel);
  }
}

/// `blocks` whole blocks of rows whose elements along a column are contiguous. A run of columns at a time, so that
/// memory is read in its order and no cache line twice.
template <class T>
void pack_column_blocks(const T* in, int64_t stride, int64_t blocks, int64_t depth, float* out) {
  constexpr int64_t kRun = 32;
  for (int64_t k = 0; k < depth; k += kRun) {
    for (int64_t block = 0; block < blocks; ++block) {
      const T* from = in + block * kBlockRows;
      float* to = out + block * kBlockSize;
      for (int64_t i = k; i < std::min(depth, k + kRun); ++i) {
        if constexpr (std::is_same_v<T, float>)
          std::memcpy(to + i * kBlockRows, from + i * stride, kBlockRows * sizeof(float));
        else
          load(to + i * kBlockRows, from + i * stride, kBlockRows);
      }
    }
  }
}

template <class T>
void pack_blocks_of(const ConstMatrix& a, int64_t row, int64_t end, int64_t k, int64_t depth, float* out) {
  const T* in = static_cast<const T*>(a.data) + row * a.row_stride + k * a.col_stride;
  if (packs_columns(a)) {
    const int64_t whole = (end - row) / kBlockRows;
    pack_column_blocks(in, a.col_stride, whole, depth, out);
    if (const int64_t rest = (end - row) % kBlockRows; rest != 0)
      pack_columns<kBlockRows>(in + whole * kBlockRows, a.col_stride, rest, depth, out + whole * kBlockSize);
    return;
  }
  const int64_t padded = (end - row + kBlockRows - 1) / kBlockRows * kBlockRows;
  for (int64_t r = 0; r < padded; ++r) {
    float* to = out + r / kBlockRows * kBlockSize + r % kBlockRows * kRowStride;
    if (r < end - row)
      pack_row(in + r * a.row_stride, a.col_stride, depth, to);
    else
      std::fill_n(to, depth, 0.0f);
  }
}

}  // namespace

void pack_panel(const ConstMatrix& b, int64_t panel, float* out) {
  switch (b.dtype) {
    case DType::f32:
      return pack_panel_of<float>(b, panel, out);
    case DType::bf16:
      return pack_panel_of<bf16>(b, panel, out);
    case DType::f16:
      return pack_panel_of<fp16>(b, panel, out);
    case DType::f64:
      throw std::logic_error("pack: float64 matrices are not packed");
  }
}

void pack_blocks(const ConstMatrix& a, int64_t row, int64_t end, int64_t k, int64_t depth, float* out) {
  switch (a.dtype) {
    case DType::f32:
      return pack_blocks_of<float>(a, row, end, k, depth, out);
    case DType::bf16:
      return pack_blocks_of<bf16>(a, row, end, k, depth, out);
    case DType::f16:
      return pack_blocks_of<fp16>(a, row, end, k, depth, out);
    case DType::f64:
      throw std::logic_error("matmul: float64 mixed with another type");
  }
}

}  // namespace cpu

ConstMatrix row_major(const void* data, DType dtype, int64_t rows, int64_t cols) {
  return {data, dtype, rows, cols, cols, 1};
}
Matrix row_major(void* data, DType dtype, int64_t rows, int64_t cols) { return {data, dtype, rows, cols, cols, 1}; }
ConstMatrix transposed(const ConstMatrix& m) { return {m.data, m.dtype, m.cols, m.rows, m.col_stride, m.row_stride}; }

}  // namespace motley::kernels
