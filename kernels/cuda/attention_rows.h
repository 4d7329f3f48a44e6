// Query rows that share their keys, tile of positions by tile: what the packed pass and the paged cache have in common,
// so that their bits agree. The device's twin of kernels/cpu/attention_rows.h.
#pragma once

#include "kernels/cuda/attention_tile.h"
#include "kernels/math.h"

namespace motley::kernels::GPU_NAMESPACE {

inline constexpr int64_t kPositionBlock = 4096;

/// What a thread's rows have gathered: the largest score and, relative to its exponential, the sum of the weights (of
/// the thread's virtual lane until a block of positions ends) and the weighted sums of the thread's columns.
template <class C, int Rows>
struct RowState {
  C largest[Rows], sum[Rows], out[Rows][kColumnsEach<C>];
};
template <class C, int Rows>
GPU_DEVICE void clear(RowState<C, Rows>& state) {
  for (int i = 0; i < Rows; ++i) {
    state.largest[i] = -static_cast<C>(INFINITY);
    state.sum[i] = C{0};
    for (int j = 0; j < kColumnsEach<C>; ++j) state.out[i][j] = C{0};
  }
}

/// Products of a thread's rows become weights relative to the largest score, and are added to the sums. NaN is left out
/// of the largest; before the first score there is nothing to scale.
template <class C, int Rows>
GPU_DEVICE void weigh(RowState<C, Rows>& state, C (&scores)[Rows][kPositionsEach], const int (&own)[Rows], C scale) {
  const C lowest = -static_cast<C>(INFINITY);
  const int c = thread_column();
  for (int i = 0; i < Rows; ++i) {
    C most = lowest;
    for (int j = 0; j < kPositionsEach; ++j) {
      scores[i][j] *= scale;
      if (c + j * kSide < own[i] && scores[i][j] > most) most = scores[i][j];
    }
    for (int mask = kSide / 2; mask > 0; mask /= 2) {
      const C other = shuffle_xor(most, mask);
      most = other > most ? other : most;
    }
    const C before = state.largest[i], largest = most > before ? most : before;
    const C shift = largest == lowest ? C{0} : largest;
    state.largest[i] = largest;
    if (largest != before && before != lowest) {
      const C factor = exponential(before - shift);
      state.sum[i] *= factor;
      for (int j = 0; j < kColumnsEach<C>; ++j) state.out[i][j] *= factor;
    }
    for (int j = 0; j < kPositionsEach; ++j) {
      if (c + j * kSide >= own[i]) continue;
      scores[i][j] = exponential(scores[i][j] - shift);
      state.sum[i] += scores[i][j];
    }
  }
}

/// How what two blocks of positions have gathered becomes one.
template <class C>
struct Merge {
  C largest, earlier, later;  // the factors of their sums
  GPU_DEVICE C operator()(C earlier_sum, C later_sum) const {
    return std::fma(earlier_sum, earlier, later_sum * later);
  }
};
template <class C>
GPU_DEVICE Merge<C> merge_of(C earlier, C later) {
  const C largest = earlier < later ? later : earlier;
  const C shift = largest == -static_cast<C>(INFINITY) ? C{0} : largest;
  return {largest, exponential(earlier - shift), exponential(later - shift)};
}

/// Shared memory of a block of Rows * 16 rows.
template <class C>
struct AttendShared {
  C *stage, *weights;  // [stage_size], [rows][kWeightStride]
  int64_t* places;     // [kPositions], of a tile's positions in `keys`
};
/// What a block attends with: `rows` of its tile, for `columns` columns from `column` on.
template <class C>
struct AttendSize {
  int rows;
  int64_t head_dim, column;
  int columns;
  C scale;
};
template <class C>
GPU_DEVICE AttendSize<C> attend_size(int rows, int64_t head_dim, int64_t column, double scale) {
  return {rows, head_dim, column, static_cast<int>(lesser(head_dim - column, kColumns<C>)), static_cast<C>(scale)};
}
/// Calls body(j, column) for the thread's columns of head_dim that there are.
template <class C, class Body>
GPU_DEVICE void for_each_column(const AttendSize<C>& size, Body body) {
  for (int j = 0; j < kColumnsEach<C>; ++j)
    if (thread_column() + j * kSide < size.columns) body(j, size.column + thread_column() + j * kSide);
}

/// Of the positions [begin, end) of one block of positions, the thread's row i attends to those below limits[i], from
/// scratch. query(row, d) is a row's q; keys.place(position) finds what keys.key and keys.value read at an offset from
/// there.
template <class C, int Rows, class Query, class Keys>
GPU_DEVICE void attend(RowState<C, Rows>& state, int64_t begin, int64_t end, const int64_t (&limits)[Rows],
                       const AttendSize<C>& size, const AttendShared<C>& shared, Query query, const Keys& keys) {
  clear(state);
  for (int64_t first = begin; first < end; first += kPositions) {
    const int count = positions_below(end, first);
    int own[Rows];
    for (int i = 0; i < Rows; ++i) own[i] = positions_below(limits[i], first);
    if (thread() < count) shared.places[thread()] = keys.place(first + thread());
    C scores[Rows][kPositionsEach];
    multiply_rows(scores, shared.stage, size.rows, count, size.head_dim, query,
                  [&](int p, int64_t d) { return keys.key(shared.places[p] + d); });
    weigh(state, scores, own, size.scale);
    store_weights(shared.weights, scores);
    add_positions(state.out, shared.weights, shared.stage, own, size.rows, count, size.columns,
                  [&](int p, int d) { return keys.value(shared.places[p] + size.column + d); });
  }
  for (int i = 0; i < Rows; ++i) state.sum[i] = add_lanes(state.sum[i]);
}

}  // namespace motley::kernels::GPU_NAMESPACE
