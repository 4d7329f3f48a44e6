#include "kernels/attention.h"
#include "kernels/cpu/instantiate.h"
#include "kernels/cuda/attention_packed.h"
#include "kernels/cuda/attention_rows.h"

namespace motley::kernels::GPU_NAMESPACE {
namespace {

template <class T>
constexpr PackedTiles tiles_of(const AttentionArgs<T>& args) {
  return {args.heads / args.kv_heads, kSide * kRowsEach<Compute<T>>};
}

/// A tile of query rows for each block, the last ones of the last sequence first: they have the most keys. `earlier`
/// [rows, heads, head_dim] keeps the sums of earlier blocks of positions, where there are several.
template <class T>
GPU_KERNEL void attention_kernel(AttentionArgs<T> a, Compute<T>* earlier) {
  using C = Compute<T>;
  constexpr int kRows = kRowsEach<C>, kTileRows = kSide * kRows, kStage = stage_size<C, kRows>();
  GPU_SHARED(C, stage, kStage);
  GPU_SHARED(C, weights, kTileRows * kWeightStride);
  GPU_SHARED(int64_t, places, kPositions);
  GPU_SHARED(int64_t, row_places, kTileRows);
  const PackedPart part = packed_part<C>(blocks() - 1 - block(), a.kv_heads, a.head_dim);
  const PackedTiles tiles = tiles_of(a);
  const PackedTile tile = packed_tile(tiles, a.starts, a.sequences, part.tile);
  const int64_t left = tile.length * tiles.group - tile.first;
  if (left <= 0) return;  // all threads of the block
  const int rows = static_cast<int>(lesser(left, kTileRows));
  const PackedRows queries{tile.start, a.heads, tiles.group, part.kv_head};
  if (thread() < rows) row_places[thread()] = queries.place(tile.first + thread());
  int64_t limits[kRows];
  for (int i = 0; i < kRows; ++i) {
    const int row = thread_row() + i * kSide;
    limits[i] = row < rows ? queries.limit(tile.first + row) : 0;
  }
  const AttendSize<C> size = attend_size<C>(rows, a.head_dim, part.column, a.scale);
  const int64_t end = queries.limit(tile.first + rows - 1);
  RowState<C, kRows> state;
  C largest[kRows] = {}, sum[kRows] = {};  // of earlier blocks
  for (int64_t begin = 0; begin < end; begin += kPositionBlock) {
    attend(
        state, begin, lesser(end, begin + kPositionBlock), limits, size, AttendShared<C>{stage, weights, places},
        [&](int row, int64_t d) { return load(a.q[row_places[row] * a.head_dim + d]); },
        PackedKeys<T>{a.k, a.v, tile.start, a.kv_heads, part.kv_head, a.head_dim});
    for (int i = 0; i < kRows; ++i) {
      const int row = thread_row() + i * kSide;
      if (row >= rows) continue;
      C* const kept = earlier + row_places[row] * a.head_dim;
      if (begin > 0 && limits[i] > begin) {
        const Merge<C> merge = merge_of(largest[i], state.largest[i]);
        state.largest[i] = merge.largest;
        state.sum[i] = merge(sum[i], state.sum[i]);
        for_each_column(size, [&](int j, int64_t d) { state.out[i][j] = merge(kept[d], state.out[i][j]); });
      } else if (begin > 0) {
        state.largest[i] = largest[i];
        state.sum[i] = sum[i];
        for_each_column(size, [&](int j, int64_t d) { state.out[i][j] = kept[d]; });
      }
      if (begin + kPositionBlock >= end) continue;
      largest[i] = state.largest[i];
      sum[i] = state.sum[i];
      for_each_column(size, [&](int j, int64_t d) { kept[d] = state.out[i][j]; });
    }
  }
  for (int i = 0; i < kRows; ++i) {
    const int row = thread_row() + i * kSide;
    if (row >= rows) continue;
    T* const y = a.y + row_places[row] * a.head_dim;
    for_each_column(size, [&](int j, int64_t d) { y[d] = store<T>(state.out[i][j] / state.sum[i]); });
    if (a.lse != nullptr && part.column == 0 && thread_column() == 0)
      a.lse[row_places[row]] = state.largest[i] + logarithm(state.sum[i]);
  }
}

}  // namespace

template <class T>
void attention(const AttentionArgs<T>& args) {
  using C = Compute<T>;
  if (args.rows == 0) return;
  const Scratch<C> earlier(args.rows > kPositionBlock ? args.rows * args.heads * args.head_dim : 0);
  const int64_t tiles = tiles_of(args).count(args.rows, args.sequences);
  launch({"attention", packed_parts<C>(tiles, args.kv_heads, args.head_dim), kAttentionThreads}, attention_kernel<T>,
         args, earlier.data());
}

#define MOTLEY_INSTANTIATE(T) template void attention<T>(const AttentionArgs<T>&);
MOTLEY_FOR_EACH_TYPE(MOTLEY_INSTANTIATE)

}  // namespace motley::kernels::GPU_NAMESPACE
