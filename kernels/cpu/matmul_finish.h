// The finish of a product: sums of one row of C are scaled, rounded, gated, added to a residual and stored. The same
// loops for every kernel that ends in C, and the same bits as the separate kernels silu_mul and add.
#pragma once

#include <algorithm>

#include "kernels/cpu/elements.h"
#include "kernels/math.h"
#include "kernels/matmul.h"

namespace motley::kernels::cpu {

constexpr int64_t kFinishColumns = 64;  // finished at a time, in registers and the first cache

/// Nothing but alpha and a rounding lies between the sums and C.
inline bool finish_is_plain(const MatmulArgs& args) {
  return args.column_factors == nullptr && args.row_factors == nullptr && args.gate.data == nullptr &&
         args.residual.data == nullptr;
}

/// sums[i] of C's element (row, col + i), before rounding.
inline void scale_sums(const MatmulArgs& args, int64_t row, int64_t col, int64_t count, float* sums) {
  for (int64_t i = 0; i < count; ++i) sums[i] *= args.alpha;
  if (const float* factors = args.column_factors) {
    for (int64_t i = 0; i < count; ++i) sums[i] *= factors[col + i];
  }
  if (args.row_factors != nullptr) {
    const float factor = args.row_factors[row];
    for (int64_t i = 0; i < count; ++i) sums[i] *= factor;
  }
}

template <class T>
inline void round_to(float* values, int64_t count) {
  if constexpr (!std::is_same_v<T, float>) {
    for (int64_t i = 0; i < count; ++i) values[i] = load(store<T>(values[i]));
  }
}

/// Elements (row, col + i) of an operand of the finish.
template <class T>
inline void load_finish(const ConstMatrix& m, int64_t row, int64_t col, int64_t count, float* out) {
  const T* in = static_cast<const T*>(m.data) + row * m.row_stride + col * m.col_stride;
  if (m.col_stride == 1) return load(out, in, count);
  for (int64_t i = 0; i < count; ++i) out[i] = load(in[i * m.col_stride]);
}

/// Stores C's elements (row, col .. col + count) given their sums, which are overwritten.
template <class T>
void finish_row_as(const MatmulArgs& args, int64_t row, int64_t col, int64_t count, float* sums) {
  scale_sums(args, row, col, count, sums);
  for (int64_t at = 0; at < count; at += kFinishColumns) {
    const int64_t width = std::min(kFinishColumns, count - at);
    float* v = sums + at;
    float operand[kFinishColumns];
    if (args.gate.data != nullptr) {
      round_to<T>(v, width);
      load_finish<T>(args.gate, row, col + at, width, operand);
      for (int64_t i = 0; i < width; ++i) v[i] = operand[i] * (1.0f / (1.0f + exponential(-operand[i]))) * v[i];
    }
    if (args.residual.data != nullptr) {
      round_to<T>(v, width);
      load_finish<T>(args.residual, row, col + at, width, operand);
      for (int64_t i = 0; i < width; ++i) v[i] = operand[i] + v[i];
    }
    T* out = static_cast<T*>(args.c.data) + row * args.c.row_stride + (col + at) * args.c.col_stride;
    if (args.c.col_stride == 1) {
      store(out, v, width);
    } else {
      for (int64_t i = 0; i < width; ++i) out[i * args.c.col_stride] = store<T>(v[i]);
    }
  }
}

/// The same for C's run-time type: f32, bf16 or f16.
inline void finish_row(const MatmulArgs& args, int64_t row, int64_t col, int64_t count, float* sums) {
  if (args.c.dtype == DType::f32) return finish_row_as<float>(args, row, col, count, sums);
  if (args.c.dtype == DType::bf16) return finish_row_as<bf16>(args, row, col, count, sums);
  return finish_row_as<fp16>(args, row, col, count, sums);
}

}  // namespace motley::kernels::cpu
