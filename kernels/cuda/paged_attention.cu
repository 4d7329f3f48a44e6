#include <stdexcept>

#include "kernels/attention.h"
#include "kernels/cpu/instantiate.h"
#include "kernels/cuda/attention_rows.h"
#include "kernels/kv_format.h"

namespace motley::kernels::GPU_NAMESPACE {
namespace {

/// Keys and values of one sequence and head of keys in the cache, decoded as they are read.
template <Format F, class T>
struct PagedKeys {
  using Code = typename KvCode<F>::type;
  const Code *keys, *values;
  const int32_t* pages;
  int page_size;
  int64_t kv_heads, kv_head, head_dim;
  Compute<T> scale;
  GPU_DEVICE int64_t place(int64_t position) const {
    const int page = static_cast<int>(position) / page_size, offset = static_cast<int>(position) % page_size;
    return ((int64_t{pages[page]} * page_size + offset) * kv_heads + kv_head) * head_dim;
  }
  GPU_DEVICE Compute<T> key(int64_t at) const { return load(decode_kv<F, T>(keys[at], scale)); }
  GPU_DEVICE Compute<T> value(int64_t at) const { return load(decode_kv<F, T>(values[at], scale)); }
};

constexpr int kMergeThreads = 128;

/// How a step's rows are cut: neighbours of one sequence up to a multiple of `positions`, `group` query rows each. A
/// cut of at most 16 query rows is one tile, a larger one a wide tile, or several when the group is large.
struct Cuts {
  int64_t group, wide_rows;
  constexpr int64_t positions() const { return group >= wide_rows ? 1 : wide_rows / group; }
  constexpr int64_t tiles(int64_t tile_rows) const { return tile_rows == kSide ? 1 : pieces(group, tile_rows); }
  constexpr bool any(int64_t tile_rows, int64_t rows) const {
    return tile_rows == kSide ? group <= kSide : rows * group > kSide;
  }
};
template <class T>
constexpr Cuts cuts_of(const PagedAttentionArgs<T>& args) {
  return {args.heads / args.kv_heads, kSide * kRowsEach<Compute<T>>};
}

/// What a row has gathered from a block of positions: [row and head][largest, sum, head_dim sums].
template <class C>
struct Partial {
  C* data;  // null: there is one block of positions
  int64_t rows, head_dim;
  GPU_DEVICE C* at(int64_t block_of_positions, int64_t place) const {
    return data + (block_of_positions * rows + place) * (2 + head_dim);
  }
};

/// A block for each row of the step, of which the first of a cut does the work of all, for each block of positions,
/// head of keys, tile and kColumns columns of head_dim.
template <Format F, class T, int Rows>
GPU_KERNEL void paged_attention_kernel(PagedAttentionArgs<T> a, Partial<Compute<T>> partial) {
  using C = Compute<T>;
  constexpr int kTileRows = kSide * Rows, kStage = stage_size<C, Rows>();
  GPU_SHARED(C, stage, kStage);
  GPU_SHARED(C, weights, kTileRows * kWeightStride);
  GPU_SHARED(int64_t, places, kPositions);
  GPU_SHARED(int64_t, row_places, kTileRows);
  const Cuts cuts = cuts_of(a);
  const int64_t chunks = pieces(a.head_dim, kColumns<C>), tiles = cuts.tiles(kTileRows);
  const int64_t column = block() % chunks * kColumns<C>, tile = block() / chunks % tiles;
  const int64_t kv_head = block() / (chunks * tiles) % a.kv_heads;
  const int64_t position_block = block() / (chunks * tiles * a.kv_heads) % pieces(a.longest, kPositionBlock);
  const int64_t begin = block() / (chunks * tiles * a.kv_heads * pieces(a.longest, kPositionBlock));
  const int32_t* const pages = a.page_table[begin];
  if (begin % cuts.positions() != 0 && a.page_table[begin - 1] == pages) return;  // all threads of the block
  int64_t end = begin, limit = 0;
  do {
    limit = a.positions[end] >= limit ? a.positions[end] + 1 : limit;
    ++end;
  } while (end < a.rows && end % cuts.positions() != 0 && a.page_table[end] == pages);
  const int64_t query_rows = (end - begin) * cuts.group, first = tile * kTileRows;
  const int64_t first_position = position_block * kPositionBlock;
  if ((query_rows <= kSide) != (Rows == 1) || first_position >= limit) return;  // another kernel's, or nobody's
  const int rows = static_cast<int>(lesser(query_rows - first, kTileRows));
  if (thread() < rows) {
    const int64_t row = first + thread();
    row_places[thread()] = (begin + row / cuts.group) * a.heads + kv_head * cuts.group + row % cuts.group;
  }
  int64_t limits[Rows];
  for (int i = 0; i < Rows; ++i) {
    const int row = thread_row() + i * kSide;
    limits[i] = row < rows ? a.positions[begin + (first + row) / cuts.group] + 1 : 0;
  }
  const AttendSize<C> size = attend_size<C>(rows, a.head_dim, column, a.scale);
  using Code = typename KvCode<F>::type;
  RowState<C, Rows> state;
  attend(
      state, first_position, lesser(limit, first_position + kPositionBlock), limits, size,
      AttendShared<C>{stage, weights, places},
      [&](int row, int64_t d) { return load(a.q[row_places[row] * a.head_dim + d]); },
      PagedKeys<F, T>{static_cast<const Code*>(a.keys), static_cast<const Code*>(a.values), pages,
                      static_cast<int>(a.page_size), a.kv_heads, kv_head, a.head_dim, static_cast<C>(a.kv_scale)});
  for (int i = 0; i < Rows; ++i) {
    const int row = thread_row() + i * kSide;
    if (row >= rows) continue;
    if (partial.data == nullptr) {
      T* const y = a.y + row_places[row] * a.head_dim;
      for_each_column(size, [&](int j, int64_t d) { y[d] = store<T>(state.out[i][j] / state.sum[i]); });
      continue;
    }
    C* const kept = partial.at(position_block, row_places[row]);
    for_each_column(size, [&](int j, int64_t d) { kept[2 + d] = state.out[i][j]; });
    if (column > 0 || thread_column() > 0) continue;
    kept[0] = state.largest[i];
    kept[1] = state.sum[i];
  }
}

/// y of a row and head for each block, from what the blocks of positions have gathered.
template <class T>
GPU_KERNEL void paged_merge_kernel(PagedAttentionArgs<T> a, Partial<Compute<T>> partial) {
  using C = Compute<T>;
  const int64_t blocks_of_positions = pieces(int64_t{a.positions[block() / a.heads]} + 1, kPositionBlock);
  for (int64_t d = thread(); d < a.head_dim; d += threads()) {
    const C* const first = partial.at(0, block());
    C largest = first[0], sum = first[1], out = first[2 + d];
    for (int64_t b = 1; b < blocks_of_positions; ++b) {
      const C* const later = partial.at(b, block());
      const Merge<C> merge = merge_of(largest, later[0]);
      largest = merge.largest;
      sum = merge(sum, later[1]);
      out = merge(out, later[2 + d]);
    }
    a.y[block() * a.head_dim + d] = store<T>(out / sum);
  }
}

/// The cuts that have tiles of Rows * 16 query rows.
template <int Rows, class T>
void launch_cuts(const PagedAttentionArgs<T>& args, const Partial<Compute<T>>& partial) {
  const Cuts cuts = cuts_of(args);
  if (!cuts.any(kSide * Rows, args.rows)) return;
  const int64_t parts = args.rows * pieces(args.longest, kPositionBlock) * args.kv_heads * cuts.tiles(kSide * Rows) *
                        pieces(args.head_dim, kColumns<Compute<T>>);
  visit_kv_format(args.kv_format, [&]<Format F>(std::integral_constant<Format, F>) {
    launch({Rows == 1 ? "paged_attention" : "paged_attention_wide", parts, kAttentionThreads},
           paged_attention_kernel<F, T, Rows>, args, partial);
  });
}

}  // namespace

template <class T>
void paged_attention(const PagedAttentionArgs<T>& args) {
  using C = Compute<T>;
  if (args.rows == 0) return;
  const int64_t blocks_of_positions = pieces(args.longest, kPositionBlock), rows = args.rows * args.heads;
  const Scratch<C> gathered(blocks_of_positions > 1 ? blocks_of_positions * rows * (2 + args.head_dim) : 0);
  const Partial<C> partial{blocks_of_positions > 1 ? gathered.data() : nullptr, rows, args.head_dim};
  launch_cuts<1>(args, partial);
  launch_cuts<kRowsEach<C>>(args, partial);
  if (partial.data != nullptr) launch({"paged_merge", rows, kMergeThreads}, paged_merge_kernel<T>, args, partial);
}

#define MOTLEY_INSTANTIATE(T) template void paged_attention<T>(const PagedAttentionArgs<T>&);
MOTLEY_FOR_EACH_TYPE(MOTLEY_INSTANTIATE)

}  // namespace motley::kernels::GPU_NAMESPACE
