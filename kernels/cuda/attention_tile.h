// Tiles of attention: a block of 256 threads holds rows of queries against 64 positions. Thread (r, c) of 16 by 16 has
// the rows r + 16 i and the positions, or columns of head_dim, c + 16 j. So a row belongs to one half-warp, and a
// position to the thread of its virtual lane: the orders of kernels/attention.h need no other exchange.
//
// `source`s are functions of a row (or a position) and a column of head_dim that read an element as it is computed in.
#pragma once

#include "kernels/cuda/gpu.h"
#include "kernels/cuda/lanes.h"
#include "kernels/elements.h"

namespace motley::kernels::GPU_NAMESPACE {

inline constexpr int kSide = 16;
inline constexpr int kAttentionThreads = kSide * kSide;
inline constexpr int kPositions = 64;  // of a tile
inline constexpr int kPositionsEach = kPositions / kSide;
inline constexpr int kWeightStride = kPositions + 1;  // spreads a column over the banks
inline constexpr int kDepth = 32;                     // columns, or positions, in shared memory at a time

/// Rows of a tile, and columns of head_dim that a block adds up, for each thread. More columns are more blocks, which
/// compute the scores again. Doubles take twice the registers.
template <class C>
inline constexpr int kRowsEach = sizeof(C) == 8 ? 2 : 4;
template <class C>
inline constexpr int kColumnsEach = sizeof(C) == 8 ? 4 : 8;
template <class C>
inline constexpr int kColumns = kSide* kColumnsEach<C>;

/// Elements that multiply_rows and the sums below keep in shared memory, for Rows * 16 rows.
template <class C, int Rows>
constexpr int stage_size() {
  constexpr int kOperands = kDepth * (kSide * Rows + 1 + kPositions + 1), kSummands = kDepth * kColumns<C>;
  return kOperands > kSummands ? kOperands : kSummands;
}

GPU_DEVICE int thread_row() { return thread() / kSide; }
GPU_DEVICE int thread_column() { return thread() % kSide; }
GPU_DEVICE int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }
/// Of a tile's positions from `first` on those below `limit`.
GPU_DEVICE int positions_below(int64_t limit, int64_t first) {
  return static_cast<int>(limit <= first ? 0 : lesser(limit - first, kPositions));
}

/// stage[d][row] = source(row, first + d) for d below depth: `rows` of Rows, zeros for the others.
template <int Rows, class C, class Source>
GPU_DEVICE void stage_transposed(C* stage, int rows, int64_t first, int depth, Source source) {
  for (int i = thread(); i < Rows * kDepth; i += kAttentionThreads) {
    const int row = i / kDepth, d = i % kDepth;
    if (d < depth) stage[d * (Rows + 1) + row] = row < rows ? source(row, first + d) : C{0};
  }
}
/// stage[i][column] = source(first + i, column) for the first `count` rows and `columns` columns, zeros for the others.
template <class C, class Source>
GPU_DEVICE void stage_columns(C* stage, int first, int count, int columns, Source source) {
  for (int i = thread(); i < kDepth * kColumns<C>; i += kAttentionThreads) {
    const int row = i / kColumns<C>, column = i % kColumns<C>;
    stage[i] = row < count && column < columns ? source(first + row, column) : C{0};
  }
}

/// product[i][j] = the chain over head_dim of left(row, d) * right(position, d), from zero, for `rows` and `positions`.
template <class C, int Rows, class Left, class Right>
GPU_DEVICE void multiply_rows(C (&product)[Rows][kPositionsEach], C* stage, int rows, int positions, int64_t head_dim,
                              Left left, Right right) {
  constexpr int kTileRows = kSide * Rows;
  const int r = thread_row(), c = thread_column();
  C* const other = stage + kDepth * (kTileRows + 1);
  for (int i = 0; i < Rows; ++i)
    for (int j = 0; j < kPositionsEach; ++j) product[i][j] = C{0};
  for (int64_t first = 0; first < head_dim; first += kDepth) {
    const int depth = static_cast<int>(lesser(head_dim - first, kDepth));
    barrier();
    stage_transposed<kTileRows>(stage, rows, first, depth, left);
    stage_transposed<kPositions>(other, positions, first, depth, right);
    barrier();
    if (r >= rows) continue;  // of few rows most threads have none
    for (int d = 0; d < depth; ++d) {
      C x[Rows], y[kPositionsEach];
      for (int i = 0; i < Rows; ++i) x[i] = stage[d * (kTileRows + 1) + r + i * kSide];
      for (int j = 0; j < kPositionsEach; ++j) y[j] = other[d * (kPositions + 1) + c + j * kSide];
      for (int i = 0; i < Rows; ++i)
        for (int j = 0; j < kPositionsEach; ++j) product[i][j] = std::fma(x[i], y[j], product[i][j]);
    }
  }
}

/// A thread's elements to weights[row][kWeightStride]. They are read behind a barrier, written behind another.
template <class C, int Rows>
GPU_DEVICE void store_weights(C* weights, const C (&tile)[Rows][kPositionsEach]) {
  for (int i = 0; i < Rows; ++i)
    for (int j = 0; j < kPositionsEach; ++j)
      weights[(thread_row() + i * kSide) * kWeightStride + thread_column() + j * kSide] = tile[i][j];
}

/// sum[i][j] += weights[row][p] * source(p, column), p ascending to own[i], of the tile's `positions`.
template <class C, int Rows, class Source>
GPU_DEVICE void add_positions(C (&sum)[Rows][kColumnsEach<C>], const C* weights, C* stage, const int (&own)[Rows],
                              int rows, int positions, int columns, Source source) {
  const int r = thread_row(), c = thread_column();
  for (int first = 0; first < positions; first += kDepth) {
    const int count = static_cast<int>(lesser(positions - first, kDepth));
    barrier();
    stage_columns(stage, first, count, columns, source);
    barrier();
    if (r >= rows) continue;
    for (int p = 0; p < count; ++p) {
      C x[Rows], y[kColumnsEach<C>];
      for (int i = 0; i < Rows; ++i) x[i] = weights[(r + i * kSide) * kWeightStride + first + p];
      for (int j = 0; j < kColumnsEach<C>; ++j) y[j] = stage[p * kColumns<C> + c + j * kSide];
      for (int i = 0; i < Rows; ++i)
        for (int j = 0; j < kColumnsEach<C>; ++j)
          if (first + p < own[i]) sum[i][j] = std::fma(x[i], y[j], sum[i][j]);
    }
  }
}

/// sum[i][j] += weights[row][position] * source(row, column), rows ascending from the first that has the position
/// r + 16 i: own[row] positions are a row's.
template <class C, class Source>
GPU_DEVICE void add_rows(C (&sum)[kPositionsEach][kColumnsEach<C>], const C* weights, C* stage, const int* own,
                         int rows, int columns, Source source) {
  const int r = thread_row(), c = thread_column();
  for (int first = 0; first < rows; first += kDepth) {
    const int count = static_cast<int>(lesser(rows - first, kDepth));
    barrier();
    stage_columns(stage, first, count, columns, source);
    barrier();
    for (int row = 0; row < count; ++row) {
      C x[kPositionsEach], y[kColumnsEach<C>];
      for (int i = 0; i < kPositionsEach; ++i) x[i] = weights[(first + row) * kWeightStride + r + i * kSide];
      for (int j = 0; j < kColumnsEach<C>; ++j) y[j] = stage[row * kColumns<C> + c + j * kSide];
      const int positions = own[first + row];
      for (int i = 0; i < kPositionsEach; ++i)
        for (int j = 0; j < kColumnsEach<C>; ++j)
          if (r + i * kSide < positions) sum[i][j] = std::fma(x[i], y[j], sum[i][j]);
    }
  }
}

}  // namespace motley::kernels::GPU_NAMESPACE
