// A block's tile of the product with the bits of the CPU's, for one product (matmul.cu) and for groups of them
// (matmul_grouped.cu): one chain of fused multiply-adds per output, k ascending, cut where the CPU cuts it. Tiles go
// through shared memory; what lies beyond an edge takes no part in a chain, so that a sum of -0 stays one. Codes of a
// packed matrix are decoded as a tile is loaded.
#pragma once

#include "kernels/cuda/packed_form.h"
#include "kernels/cuda/product.h"

namespace motley::kernels::GPU_NAMESPACE {

inline constexpr int kTileRows = 64, kTileDepth = 16, kEach = 4;  // kEach^2 outputs of a thread
inline constexpr int kProductThreads = kTileRows / kEach * (kTileRows / kEach);
inline constexpr int kTileStride = kTileRows + 1;  // of a step of k, so that stores of both layouts spread over banks

/// Rows [row, row + kTileRows) and columns [first, first + depth) of an operand.
struct TilePlace {
  int64_t row, first;
  int depth;  // at most kTileDepth
};

/// tile[k][row], zeros beyond the last row.
template <class T, class Sum>
GPU_DEVICE void load_tile_as(Sum* tile, const ConstMatrix& m, const TilePlace& at) {
  const T* data = static_cast<const T*>(m.data);
  // Neighbouring threads take neighbouring elements, in whichever direction they lie.
  const bool deep = m.col_stride == 1;
  for (int i = thread(); i < kTileRows * kTileDepth; i += kProductThreads) {
    const int r = deep ? i / kTileDepth : i % kTileRows, k = deep ? i % kTileDepth : i / kTileRows;
    const bool inside = at.row + r < m.rows && k < at.depth;
    const int64_t from = (at.row + r) * m.row_stride + (at.first + k) * m.col_stride;
    tile[k * kTileStride + r] = inside ? static_cast<Sum>(data[from]) : Sum{0};
  }
}
GPU_DEVICE void load_tile(double* tile, const ConstMatrix& m, const TilePlace& at) {
  load_tile_as<double>(tile, m, at);
}
GPU_DEVICE void load_tile(float* tile, const ConstMatrix& m, const TilePlace& at) {
  if (m.dtype == DType::f32)
    load_tile_as<float>(tile, m, at);
  else if (m.dtype == DType::bf16)
    load_tile_as<bf16>(tile, m, at);
  else
    load_tile_as<fp16>(tile, m, at);
}
GPU_DEVICE void load_tile(float* tile, const PackedCodes& b, const TilePlace& at) {
  visit_packed_form(b, [&]<Format F, Scaling S>() {
    for (int i = thread(); i < kTileRows * kTileDepth; i += kProductThreads) {
      const int r = i % kTileRows, k = i / kTileRows;
      const bool inside = at.row + r < b.rows && k < at.depth;
      tile[k * kTileStride + r] = inside ? packed_value<F, S>(b, at.row + r, at.first + k) : 0.0f;
    }
  });
}

/// The outputs of a thread lie kAcross apart, so that a warp stores neighbours.
inline constexpr int kAcross = kTileRows / kEach;
struct ChainPlace {
  int64_t row, col;
  GPU_DEVICE int64_t m(int i) const { return row + thread() / kAcross + i * kAcross; }
  GPU_DEVICE int64_t n(int j) const { return col + thread() % kAcross + j * kAcross; }
};

template <class Sum>
GPU_DEVICE void multiply_tile(Sum (&sum)[kEach][kEach], const Sum* a, const Sum* b, int depth) {
  const int r = thread() / kAcross, c = thread() % kAcross;
  for (int k = 0; k < depth; ++k) {
    Sum x[kEach], y[kEach];
    GPU_UNROLL
    for (int i = 0; i < kEach; ++i) {
      x[i] = a[k * kTileStride + r + i * kAcross];
      y[i] = b[k * kTileStride + c + i * kAcross];
    }
    GPU_UNROLL
    for (int i = 0; i < kEach; ++i) {
      GPU_UNROLL
      for (int j = 0; j < kEach; ++j) sum[i][j] = std::fma(x[i], y[j], sum[i][j]);
    }
  }
}

/// The tile of C at a place, of n columns of C. Sum: what C is computed in. Cut: k_tile is not 0.
template <class Sum, bool Cut>
GPU_DEVICE void multiply_chain_tile(const Product& p, int64_t n, const ChainPlace& at) {
  GPU_SHARED(Sum, a, kTileDepth * kTileStride);
  GPU_SHARED(Sum, b, kTileDepth * kTileStride);
  const MatmulArgs& args = p.args;
  const int64_t rows = args.c.rows, depth = args.a.cols;
  Sum sum[kEach][kEach], total[Cut ? kEach : 1][kEach];
  GPU_UNROLL
  for (int i = 0; i < kEach; ++i) {
    GPU_UNROLL
    for (int j = 0; j < kEach; ++j) {
      const Sum start = at.m(i) < rows && at.n(j) < n ? initial_sum<Sum>(args, at.m(i), at.n(j)) : Sum{0};
      sum[i][j] = Cut ? Sum{0} : start;
      if constexpr (Cut) total[i][j] = start;
    }
  }
  for (int64_t first = 0; first < depth;) {
    int64_t end = first + kTileDepth < depth ? first + kTileDepth : depth;
    if (Cut && end > (first / args.k_tile + 1) * args.k_tile) end = (first / args.k_tile + 1) * args.k_tile;
    const int steps = static_cast<int>(end - first);
    barrier();
    load_tile(a, args.a, {at.row, first, steps});
    if constexpr (std::is_same_v<Sum, float>) {
      if (args.packed_codes.codes != nullptr)
        load_tile(b, args.packed_codes, {at.col, first, steps});
      else
        load_tile(b, args.b, {at.col, first, steps});
    } else {
      load_tile(b, args.b, {at.col, first, steps});
    }
    barrier();
    multiply_tile(sum, a, b, steps);
    first = end;
    if constexpr (Cut) {
      if (end % args.k_tile != 0 && end != depth) continue;
      GPU_UNROLL
      for (int i = 0; i < kEach; ++i) {
        GPU_UNROLL
        for (int j = 0; j < kEach; ++j) {
          if (at.m(i) < rows && at.n(j) < n)
            total[i][j] = add_partial(args, at.m(i), at.n(j), end, sum[i][j], total[i][j]);
          sum[i][j] = Sum{0};
        }
      }
    }
  }
  GPU_UNROLL
  for (int i = 0; i < kEach; ++i) {
    GPU_UNROLL
    for (int j = 0; j < kEach; ++j)
      if (at.m(i) < rows && at.n(j) < n) finish(p, at.m(i), at.n(j), Cut ? total[Cut ? i : 0][j] : sum[i][j]);
  }
}

}  // namespace motley::kernels::GPU_NAMESPACE
