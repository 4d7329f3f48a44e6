// A plain product with the bits of the CPU's: one chain of fused multiply-adds per output, k ascending. Tiles go
// through shared memory; what lies beyond an edge takes no part in a chain, so that a sum of -0 stays one.
#pragma once

#include "kernels/cuda/gpu.h"
#include "kernels/dtype.h"

namespace motley::kernels::GPU_NAMESPACE {

/// Element (r, c) lies at data[r * row_stride + c * col_stride].
template <class T>
struct View {
  T* data;
  int64_t row_stride, col_stride;
};
/// C = (A B^T) / divisor, or C continued with `accumulate`. A [m, k], B [n, k], C [m, n] row-major; C is rounded once.
template <class A, class B, class C>
struct Product {
  View<const A> a;
  View<const B> b;
  C* c;
  int64_t m, n, k;
  Compute<C> divisor;
  bool accumulate;
};

inline constexpr int kTileRows = 64, kTileDepth = 16, kEach = 4;  // kEach^2 outputs of a thread
inline constexpr int kProductThreads = kTileRows / kEach * (kTileRows / kEach);
inline constexpr int kTileStride = kTileRows + 1;  // of a step of k, so that stores of both layouts spread over banks

/// Rows [row, row + kTileRows) and k in [first, first + kTileDepth) of a matrix, as tile[k][row]; zeros beyond it.
template <class T, class C>
GPU_DEVICE void load_tile(C* tile, const View<const T>& m, int64_t row, int64_t rows, int64_t first, int64_t depth) {
  for (int i = thread(); i < kTileRows * kTileDepth; i += kProductThreads) {
    // Neighbouring threads take neighbouring elements, in whichever direction they lie.
    const bool deep = m.col_stride == 1;
    const int r = deep ? i / kTileDepth : i % kTileRows, k = deep ? i % kTileDepth : i / kTileRows;
    const bool inside = row + r < rows && first + k < depth;
    const int64_t at = (row + r) * m.row_stride + (first + k) * m.col_stride;
    tile[k * kTileStride + r] = inside ? static_cast<C>(static_cast<Compute<T>>(m.data[at])) : C{0};
  }
}

template <class A, class B, class C>
GPU_KERNEL void product_kernel(Product<A, B, C> p) {
  using Sum = Compute<C>;
  GPU_SHARED(Sum, a, kTileDepth * kTileStride);
  GPU_SHARED(Sum, b, kTileDepth * kTileStride);
  constexpr int kAcross = kTileRows / kEach;  // threads
  const int64_t across = pieces(p.n, kTileRows);
  const int64_t row = block() / across * kTileRows, col = block() % across * kTileRows;
  // A thread's outputs lie kAcross apart, so that a warp stores neighbours.
  const int r = thread() / kAcross, c = thread() % kAcross;
  Sum sum[kEach][kEach];
  for (int i = 0; i < kEach; ++i) {
    for (int j = 0; j < kEach; ++j) {
      const int64_t m = row + r + i * kAcross, n = col + c + j * kAcross;
      sum[i][j] = p.accumulate && m < p.m && n < p.n ? static_cast<Sum>(p.c[m * p.n + n]) : Sum{0};
    }
  }
  for (int64_t first = 0; first < p.k; first += kTileDepth) {
    barrier();
    load_tile(a, p.a, row, p.m, first, p.k);
    load_tile(b, p.b, col, p.n, first, p.k);
    barrier();
    const int depth = static_cast<int>(p.k - first < kTileDepth ? p.k - first : kTileDepth);
    for (int k = 0; k < depth; ++k) {
      Sum x[kEach], y[kEach];
      for (int i = 0; i < kEach; ++i) {
        x[i] = a[k * kTileStride + r + i * kAcross];
        y[i] = b[k * kTileStride + c + i * kAcross];
      }
      for (int i = 0; i < kEach; ++i)
        for (int j = 0; j < kEach; ++j) sum[i][j] = std::fma(x[i], y[j], sum[i][j]);
    }
  }
  for (int i = 0; i < kEach; ++i) {
    for (int j = 0; j < kEach; ++j) {
      const int64_t m = row + r + i * kAcross, n = col + c + j * kAcross;
      if (m < p.m && n < p.n) p.c[m * p.n + n] = static_cast<C>(sum[i][j] / p.divisor);
    }
  }
}

template <class A, class B, class C>
void product(const char* name, const Product<A, B, C>& p) {
  const int64_t tiles = pieces(p.m, kTileRows) * pieces(p.n, kTileRows);
  launch({name, tiles, kProductThreads}, product_kernel<A, B, C>, p);
}

}  // namespace motley::kernels::GPU_NAMESPACE
