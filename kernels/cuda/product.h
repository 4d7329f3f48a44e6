// Products as device kernels of this folder ask for them, and what all product kernels do at the edges: how wide a
// problem is, and the finish of one output.
#pragma once

#include "kernels/cuda/gpu.h"
#include "kernels/math.h"
#include "kernels/matmul.h"

namespace motley::kernels::GPU_NAMESPACE {

struct Product {
  MatmulArgs args;
  double divisor = 1;  // of the finished sum, in C's compute type
};

/// As `matmul`, under a name of its own for messages.
void product(const char* name, const Product& p);

/// Throws std::logic_error for what no product kernel of a device takes: the host's packed matrix, float64 mixed with
/// another type.
void check_product(const MatmulArgs& args);
inline bool is_packed(const MatmulArgs& args) { return args.packed_codes.codes != nullptr; }
inline int64_t outputs(const MatmulArgs& args) { return is_packed(args) ? args.packed_codes.rows : args.b.rows; }
/// True when C stays as it is.
inline bool is_empty_product(const MatmulArgs& args) {
  return args.c.rows == 0 || outputs(args) == 0 || (args.a.cols == 0 && args.accumulate);
}

/// An element of a matrix of fp32, bf16 or fp16.
GPU_DEVICE float element(const void* data, DType dtype, int64_t at) {
  if (dtype == DType::f32) return static_cast<const float*>(data)[at];
  if (dtype == DType::bf16) return static_cast<float>(static_cast<const bf16*>(data)[at]);
  return static_cast<float>(static_cast<const fp16*>(data)[at]);
}
GPU_DEVICE float round_to(DType dtype, float value) {
  if (dtype == DType::f32) return value;
  return dtype == DType::bf16 ? static_cast<float>(bf16(value)) : static_cast<float>(fp16(value));
}

/// What C's element (row, col) holds before the product.
template <class Sum>
GPU_DEVICE Sum initial_sum(const MatmulArgs& a, int64_t row, int64_t col) {
  return a.accumulate ? static_cast<const Sum*>(a.c.data)[row * a.c.row_stride + col * a.c.col_stride] : Sum{0};
}
/// total continued with the sum of a k_tile that ends before column `end` of A.
template <class Sum>
GPU_DEVICE Sum add_partial(const MatmulArgs& a, int64_t row, int64_t col, int64_t end, Sum partial, Sum total) {
  if constexpr (std::is_same_v<Sum, float>) {
    if (a.a_scales != nullptr) {
      const int64_t blocks = pieces(a.a.cols, 128), index = (end - 1) / 128;
      const float scale = a.a_scales[row * blocks + index] * a.b_scales[col / a.b_scale_rows * blocks + index];
      return std::fma(partial, scale, total);
    }
  }
  return total + partial;
}

/// Stores C's element (row, col), with the roundings of kernels/cpu/matmul_finish.h.
GPU_DEVICE void finish(const Product& p, int64_t row, int64_t col, float sum) {
  const MatmulArgs& a = p.args;
  const int64_t at = row * a.c.row_stride + col * a.c.col_stride;
  float v = sum * a.alpha;
  if (a.column_factors != nullptr) v *= a.column_factors[col];
  if (a.row_factors != nullptr) v *= a.row_factors[row];
  v /= static_cast<float>(p.divisor);
  if (a.gate.data != nullptr) {
    const float gate = element(a.gate.data, a.gate.dtype, row * a.gate.row_stride + col * a.gate.col_stride);
    v = gate * (1.0f / (1.0f + exponential(-gate))) * round_to(a.c.dtype, v);
  }
  if (a.residual.data != nullptr) {
    const ConstMatrix& m = a.residual;
    v = element(m.data, m.dtype, row * m.row_stride + col * m.col_stride) + round_to(a.c.dtype, v);
  }
  if (a.c.dtype == DType::f32)
    static_cast<float*>(a.c.data)[at] = v;
  else if (a.c.dtype == DType::bf16)
    static_cast<bf16*>(a.c.data)[at] = bf16(v);
  else
    static_cast<fp16*>(a.c.data)[at] = fp16(v);
}
GPU_DEVICE void finish(const Product& p, int64_t row, int64_t col, double sum) {
  const MatmulArgs& a = p.args;
  static_cast<double*>(a.c.data)[row * a.c.row_stride + col * a.c.col_stride] = sum / p.divisor;
}

}  // namespace motley::kernels::GPU_NAMESPACE
