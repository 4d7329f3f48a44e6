// Transposition in registers, for the layouts in which a vector holds sixteen rows.
#pragma once

#include <cstdint>

namespace motley::kernels::cpu {

/// out[c * out_stride + r] = in[r * in_stride + c] for a tile of 4 x 4.
inline void transpose4(const float* in, int64_t in_stride, float* out, int64_t out_stride) {
  using Vec4 [[gnu::vector_size(16), gnu::aligned(4), gnu::may_alias]] = float;
  const Vec4 r0 = *reinterpret_cast<const Vec4*>(in), r1 = *reinterpret_cast<const Vec4*>(in + in_stride);
  const Vec4 r2 = *reinterpret_cast<const Vec4*>(in + 2 * in_stride);
  const Vec4 r3 = *reinterpret_cast<const Vec4*>(in + 3 * in_stride);
  const Vec4 a = __builtin_shufflevector(r0, r1, 0, 4, 1, 5), b = __builtin_shufflevector(r2, r3, 0, 4, 1, 5);
  const Vec4 c = __builtin_shufflevector(r0, r1, 2, 6, 3, 7), d = __builtin_shufflevector(r2, r3, 2, 6, 3, 7);
  *reinterpret_cast<Vec4*>(out) = __builtin_shufflevector(a, b, 0, 1, 4, 5);
  *reinterpret_cast<Vec4*>(out + out_stride) = __builtin_shufflevector(a, b, 2, 3, 6, 7);
  *reinterpret_cast<Vec4*>(out + 2 * out_stride) = __builtin_shufflevector(c, d, 0, 1, 4, 5);
  *reinterpret_cast<Vec4*>(out + 3 * out_stride) = __builtin_shufflevector(c, d, 2, 3, 6, 7);
}
inline void transpose4(const double* in, int64_t in_stride, double* out, int64_t out_stride) {
  for (int64_t r = 0; r < 4; ++r)
    for (int64_t c = 0; c < 4; ++c) out[c * out_stride + r] = in[r * in_stride + c];
}

/// `Rows` rows (a multiple of four) of `cols` elements as out[cols][Rows].
template <int Rows, class C>
inline void transpose_rows(const C* in, int64_t in_stride, int64_t cols, C* out) {
  int64_t c = 0;
  for (; c + 4 <= cols; c += 4)
    for (int64_t r = 0; r < Rows; r += 4) transpose4(in + r * in_stride + c, in_stride, out + c * Rows + r, Rows);
  for (; c < cols; ++c)
    for (int64_t r = 0; r < Rows; ++r) out[c * Rows + r] = in[r * in_stride + c];
}
template <class C>
inline void transpose16(const C* in, int64_t in_stride, int64_t cols, C* out) {
  transpose_rows<16>(in, in_stride, cols, out);
}

}  // namespace motley::kernels::cpu
