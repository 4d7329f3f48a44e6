// Every element of dq, dk and dv is one chain, as on the CPU: dq over keys ascending, dk and dv over rows ascending
// and, within a row, over the heads of the group ascending. The probabilities are computed again, once for dq, once for
// dk and dv.
#include "kernels/attention.h"
#include "kernels/cpu/instantiate.h"
#include "kernels/cuda/attention_packed.h"
#include "kernels/math.h"

namespace motley::kernels::GPU_NAMESPACE {
namespace {

/// mean[row][head] = dy . y, in 16 lanes: a half-warp each.
template <class T>
GPU_KERNEL void attention_mean_kernel(AttentionBackwardArgs<T> a, Compute<T>* mean) {
  using C = Compute<T>;
  const int lane = thread() % kLanes;
  const int64_t row = (block() * threads() + thread()) / kLanes, at = row * a.head_dim;
  const bool inside = row < a.rows * a.heads;
  C sum{0};
  for (int64_t d = lane; inside && d < a.head_dim; d += kLanes)
    sum = std::fma(load(a.dy[at + d]), load(a.y[at + d]), sum);
  sum = add_lanes(sum);
  if (inside && lane == 0) mean[row] = sum;
}

/// Of a tile of rows: where they are, and what their probabilities take.
template <class C, int Rows>
struct RowStatistics {
  C lse[Rows], mean[Rows];
};
template <class C, int Rows>
GPU_DEVICE RowStatistics<C, Rows> statistics_of(const C* lse, const C* mean, const int64_t* row_places, int rows) {
  RowStatistics<C, Rows> found;
  for (int i = 0; i < Rows; ++i) {
    const int row = thread_row() + i * kSide;
    found.lse[i] = row < rows ? lse[row_places[row]] : C{0};
    found.mean[i] = row < rows ? mean[row_places[row]] : C{0};
  }
  return found;
}

/// Products of q and keys become weights, those of dy and values the derivative by the products of q and keys.
template <class C, int Rows>
GPU_DEVICE void differentiate(C (&weights)[Rows][kPositionsEach], C (&slopes)[Rows][kPositionsEach],
                              const RowStatistics<C, Rows>& row, C scale) {
  for (int i = 0; i < Rows; ++i) {
    for (int j = 0; j < kPositionsEach; ++j) {
      weights[i][j] = exponential(weights[i][j] * scale - row.lse[i]);
      slopes[i][j] = weights[i][j] * (slopes[i][j] - row.mean[i]) * scale;
    }
  }
}

template <class T>
constexpr PackedTiles query_tiles(const AttentionBackwardArgs<T>& a) {
  return {a.heads / a.kv_heads, kSide * kRowsEach<Compute<T>>};
}
constexpr PackedTiles key_tiles() { return {1, kPositions}; }

/// A tile of query rows for each block.
template <class T>
GPU_KERNEL void attention_dq_kernel(AttentionBackwardArgs<T> a, const Compute<T>* mean) {
  using C = Compute<T>;
  constexpr int kRows = kRowsEach<C>, kTileRows = kSide * kRows, kStage = stage_size<C, kRows>();
  GPU_SHARED(C, stage, kStage);
  GPU_SHARED(C, shared_slopes, kTileRows * kWeightStride);
  GPU_SHARED(int64_t, row_places, kTileRows);
  const PackedPart part = packed_part<C>(blocks() - 1 - block(), a.kv_heads, a.head_dim);
  const PackedTiles tiles = query_tiles(a);
  const PackedTile tile = packed_tile(tiles, a.starts, a.sequences, part.tile);
  const int64_t left = tile.length * tiles.group - tile.first;
  if (left <= 0) return;  // all threads of the block
  const int rows = static_cast<int>(lesser(left, kTileRows));
  const int columns = static_cast<int>(lesser(a.head_dim - part.column, kColumns<C>));
  const PackedRows queries{tile.start, a.heads, tiles.group, part.kv_head};
  const PackedKeys<T> keys{a.k, a.v, tile.start, a.kv_heads, part.kv_head, a.head_dim};
  if (thread() < rows) row_places[thread()] = queries.place(tile.first + thread());
  barrier();
  const auto row = statistics_of<C, kRows>(a.lse, mean, row_places, rows);
  C sum[kRows][kColumnsEach<C>] = {};
  const int64_t end = queries.limit(tile.first + rows - 1);
  for (int64_t first = 0; first < end; first += kPositions) {
    const int count = positions_below(end, first);
    int own[kRows];
    for (int i = 0; i < kRows; ++i) {
      const int r = thread_row() + i * kSide;
      own[i] = r < rows ? positions_below(queries.limit(tile.first + r), first) : 0;
    }
    C weights[kRows][kPositionsEach], slopes[kRows][kPositionsEach];
    multiply_rows(
        weights, stage, rows, count, a.head_dim,
        [&](int r, int64_t d) { return load(a.q[row_places[r] * a.head_dim + d]); },
        [&](int p, int64_t d) { return keys.key(keys.place(first + p) + d); });
    multiply_rows(
        slopes, stage, rows, count, a.head_dim,
        [&](int r, int64_t d) { return load(a.dy[row_places[r] * a.head_dim + d]); },
        [&](int p, int64_t d) { return keys.value(keys.place(first + p) + d); });
    differentiate(weights, slopes, row, static_cast<C>(a.scale));
    store_weights(shared_slopes, slopes);
    add_positions(sum, shared_slopes, stage, own, rows, count, columns,
                  [&](int p, int d) { return keys.key(keys.place(first + p) + part.column + d); });
  }
  for (int i = 0; i < kRows; ++i) {
    const int r = thread_row() + i * kSide;
    for (int j = 0; j < kColumnsEach<C>; ++j) {
      const int column = thread_column() + j * kSide;
      if (r < rows && column < columns) a.dq[row_places[r] * a.head_dim + part.column + column] = store<T>(sum[i][j]);
    }
  }
}

/// A tile of keys for each block.
template <class T>
GPU_KERNEL void attention_dk_dv_kernel(AttentionBackwardArgs<T> a, const Compute<T>* mean) {
  using C = Compute<T>;
  constexpr int kRows = kRowsEach<C>, kTileRows = kSide * kRows, kStage = stage_size<C, kRows>();
  GPU_SHARED(C, stage, kStage);
  GPU_SHARED(C, factors, kTileRows * kWeightStride);
  GPU_SHARED(int64_t, row_places, kTileRows);
  GPU_SHARED(int, own, kTileRows);
  const PackedPart part = packed_part<C>(block(), a.kv_heads, a.head_dim);
  const PackedTile tile = packed_tile(key_tiles(), a.starts, a.sequences, part.tile);
  if (tile.first >= tile.length) return;  // all threads of the block
  const int count = positions_below(tile.length, tile.first);
  const int columns = static_cast<int>(lesser(a.head_dim - part.column, kColumns<C>));
  const int64_t group = a.heads / a.kv_heads;
  const PackedRows queries{tile.start, a.heads, group, part.kv_head};
  const PackedKeys<T> keys{a.k, a.v, tile.start, a.kv_heads, part.kv_head, a.head_dim};
  C dk[kPositionsEach][kColumnsEach<C>] = {}, dv[kPositionsEach][kColumnsEach<C>] = {};
  for (int64_t first = tile.first * group; first < tile.length * group; first += kTileRows) {
    const int rows = static_cast<int>(lesser(tile.length * group - first, kTileRows));
    barrier();
    if (thread() < rows) {
      row_places[thread()] = queries.place(first + thread());
      own[thread()] = positions_below(queries.limit(first + thread()), tile.first);
    }
    const auto query = [&](int r, int64_t d) { return load(a.q[row_places[r] * a.head_dim + d]); };
    const auto slope = [&](int r, int64_t d) { return load(a.dy[row_places[r] * a.head_dim + d]); };
    C weights[kRows][kPositionsEach], slopes[kRows][kPositionsEach];
    multiply_rows(weights, stage, rows, count, a.head_dim, query,
                  [&](int p, int64_t d) { return keys.key(keys.place(tile.first + p) + d); });
    multiply_rows(slopes, stage, rows, count, a.head_dim, slope,
                  [&](int p, int64_t d) { return keys.value(keys.place(tile.first + p) + d); });
    differentiate(weights, slopes, statistics_of<C, kRows>(a.lse, mean, row_places, rows), static_cast<C>(a.scale));
    store_weights(factors, weights);
    add_rows(dv, factors, stage, own, rows, columns, [&](int r, int d) { return slope(r, part.column + d); });
    barrier();
    store_weights(factors, slopes);
    add_rows(dk, factors, stage, own, rows, columns, [&](int r, int d) { return query(r, part.column + d); });
  }
  GPU_UNROLL
  for (int i = 0; i < kPositionsEach; ++i) {
    const int p = thread_row() + i * kSide;
    GPU_UNROLL
    for (int j = 0; j < kColumnsEach<C>; ++j) {
      const int column = thread_column() + j * kSide;
      if (p >= count || column >= columns) continue;
      const int64_t at = keys.place(tile.first + p) + part.column + column;
      a.dk[at] = store<T>(dk[i][j]);
      a.dv[at] = store<T>(dv[i][j]);
    }
  }
}

}  // namespace

template <class T>
void attention_backward(const AttentionBackwardArgs<T>& args) {
  using C = Compute<T>;
  if (args.rows == 0) return;
  const int64_t rows = args.rows * args.heads;
  const Scratch<C> mean(rows);
  launch({"attention_mean", pieces(rows, kAttentionThreads / kLanes), kAttentionThreads}, attention_mean_kernel<T>,
         args, mean.data());
  const auto parts = [&](const PackedTiles& tiles) {
    return packed_parts<C>(tiles.count(args.rows, args.sequences), args.kv_heads, args.head_dim);
  };
  launch({"attention_dq", parts(query_tiles(args)), kAttentionThreads}, attention_dq_kernel<T>, args, mean.data());
  launch({"attention_dk_dv", parts(key_tiles()), kAttentionThreads}, attention_dk_dv_kernel<T>, args, mean.data());
}

#define MOTLEY_INSTANTIATE(T) template void attention_backward<T>(const AttentionBackwardArgs<T>&);
MOTLEY_FOR_EACH_TYPE(MOTLEY_INSTANTIATE)

}  // namespace motley::kernels::GPU_NAMESPACE
