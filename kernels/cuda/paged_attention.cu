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

/// How a step's rows are cut: neighbours of one sequence up to a multiple of `positions`, `group` query rows each,
/// which are a tile's, or several tiles' when the group is large.
struct Cuts {
  int64_t group, tile_rows;
  constexpr int64_t positions() const { return group >= tile_rows ? 1 : tile_rows / group; }
  constexpr int64_t tiles() const { return pieces(group, tile_rows); }
};

/// A block for each row of the step, of which the first of a cut does the work of all, for each head of keys, tile and
/// kColumns columns of head_dim.
template <Format F, class T, int Rows>
GPU_KERNEL void paged_attention_kernel(PagedAttentionArgs<T> a) {
  using C = Compute<T>;
  constexpr int kTileRows = kSide * Rows, kStage = stage_size<C, Rows>();
  GPU_SHARED(C, stage, kStage);
  GPU_SHARED(C, weights, kTileRows * kWeightStride);
  GPU_SHARED(int64_t, places, kPositions);
  GPU_SHARED(int64_t, row_places, kTileRows);
  const Cuts cuts{a.heads / a.kv_heads, kTileRows};
  const int64_t chunks = pieces(a.head_dim, kColumns<C>);
  const int64_t column = block() % chunks * kColumns<C>, tile = block() / chunks % cuts.tiles();
  const int64_t kv_head = block() / (chunks * cuts.tiles()) % a.kv_heads;
  const int64_t begin = block() / (chunks * cuts.tiles() * a.kv_heads);
  const int32_t* const pages = a.page_table[begin];
  if (begin % cuts.positions() != 0 && a.page_table[begin - 1] == pages) return;  // all threads of the block
  int64_t end = begin, limit = 0;
  do {
    limit = a.positions[end] + 1 > limit ? a.positions[end] + 1 : limit;
    ++end;
  } while (end < a.rows && end % cuts.positions() != 0 && a.page_table[end] == pages);
  const int64_t first = tile * kTileRows;
  const int rows = static_cast<int>(lesser((end - begin) * cuts.group - first, kTileRows));
  if (thread() < rows) {
    const int64_t row = first + thread();
    row_places[thread()] = (begin + row / cuts.group) * a.heads + kv_head * cuts.group + row % cuts.group;
  }
  int64_t limits[Rows];
  for (int i = 0; i < Rows; ++i) {
    const int row = thread_row() + i * kSide;
    limits[i] = row < rows ? a.positions[begin + (first + row) / cuts.group] + 1 : 0;
  }
  const AttendSize<C> size{rows,
                           limit,
                           a.head_dim,
                           column,
                           static_cast<int>(lesser(a.head_dim - column, kColumns<C>)),
                           static_cast<C>(a.scale)};
  using Code = typename KvCode<F>::type;
  RowState<C, Rows> state;
  attend(
      state, limits, size, AttendShared<C>{stage, weights, places},
      [&](int row, int64_t d) { return load(a.q[row_places[row] * a.head_dim + d]); },
      PagedKeys<F, T>{static_cast<const Code*>(a.keys), static_cast<const Code*>(a.values), pages,
                      static_cast<int>(a.page_size), a.kv_heads, kv_head, a.head_dim, static_cast<C>(a.kv_scale)});
  for (int i = 0; i < Rows; ++i) {
    const int row = thread_row() + i * kSide;
    if (row < rows) store_row(a.y, row_places[row], state, i, size);
  }
}

}  // namespace

template <class T>
void paged_attention(const PagedAttentionArgs<T>& args) {
  if (args.rows == 0) return;
  constexpr int kRows = 1;
  const Cuts cuts{args.heads / args.kv_heads, kSide * kRows};
  const int64_t parts = args.rows * args.kv_heads * cuts.tiles() * pieces(args.head_dim, kColumns<Compute<T>>);
  visit_kv_format(args.kv_format, [&]<Format F>(std::integral_constant<Format, F>) {
    launch({"paged_attention", parts, kAttentionThreads}, paged_attention_kernel<F, T, kRows>, args);
  });
}

#define MOTLEY_INSTANTIATE(T) template void paged_attention<T>(const PagedAttentionArgs<T>&);
MOTLEY_FOR_EACH_TYPE(MOTLEY_INSTANTIATE)

}  // namespace motley::kernels::GPU_NAMESPACE
