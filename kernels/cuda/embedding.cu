// Lookup and its gradient. The gradient of a table's row is one chain over the rows that looked it up, ascending. They
// are brought together by sorting, so that an id costs what its rows cost, however often it repeats.
#include "kernels/cpu/instantiate.h"
#include "kernels/cuda/gpu.h"
#include "kernels/elements.h"
#include "kernels/pointwise.h"

namespace motley::kernels::GPU_NAMESPACE {
namespace {

constexpr int kThreads = 128;
constexpr int kSortTile = 1024;  // keys that a block sorts in its shared memory
constexpr int kSortThreads = 256;
constexpr int kAhead = 16;  // loads of a chain that are under way together

/// Of a row: ordered by id, then by row; no two are equal.
GPU_DEVICE uint64_t key_of(int32_t id, int64_t row) {
  return static_cast<uint64_t>(id) << 32 | static_cast<uint64_t>(row);
}
GPU_DEVICE int64_t id_of(uint64_t key) { return static_cast<int64_t>(key >> 32); }
GPU_DEVICE int64_t row_of(uint64_t key) { return static_cast<int64_t>(key & 0xffffffffu); }

/// Where key i goes when sorted runs of `width` keys are merged in pairs: behind those of its own run before it, and
/// those of the other run that are smaller.
GPU_DEVICE int64_t merged_place(const uint64_t* keys, int64_t count, int64_t width, int64_t i) {
  const int64_t run = i / width, pair = run / 2 * 2 * width;
  const int64_t other = (run ^ 1) * width;
  int64_t begin = other < count ? other : count, end = other + width < count ? other + width : count;
  const int64_t first = begin;
  while (begin < end) {
    const int64_t middle = (begin + end) / 2;
    if (keys[middle] < keys[i])
      begin = middle + 1;
    else
      end = middle;
  }
  return pair + (i - run * width) + (begin - first);
}

/// Runs of kSortTile keys.
GPU_KERNEL void sort_tiles_kernel(const int32_t* ids, int64_t rows, uint64_t* keys) {
  GPU_SHARED(uint64_t, one, kSortTile);
  GPU_SHARED(uint64_t, two, kSortTile);
  const int64_t first = block() * kSortTile, size = rows - first < kSortTile ? rows - first : kSortTile;
  uint64_t *from = one, *to = two;
  for (int64_t i = thread(); i < size; i += threads()) from[i] = key_of(ids[first + i], first + i);
  for (int64_t width = 1; width < size; width *= 2) {
    barrier();
    for (int64_t i = thread(); i < size; i += threads()) to[merged_place(from, size, width, i)] = from[i];
    uint64_t* const sorted = to;
    to = from;
    from = sorted;
  }
  barrier();
  for (int64_t i = thread(); i < size; i += threads()) keys[first + i] = from[i];
}
GPU_KERNEL void merge_kernel(const uint64_t* from, uint64_t* to, int64_t count, int64_t width) {
  const int64_t i = block() * threads() + thread();
  if (i < count) to[merged_place(from, count, width, i)] = from[i];
}

template <class T>
GPU_KERNEL void embedding_kernel(EmbeddingArgs<T> a) {
  const T* from = a.table + a.ids[block()] * a.cols;
  T* to = a.y + block() * a.cols;
  for (int64_t c = thread(); c < a.cols; c += threads()) to[c] = from[c];
}

/// A block has one place in the order of the keys and kThreads columns; it works where a new id begins.
template <class T>
GPU_KERNEL void embedding_backward_kernel(EmbeddingBackwardArgs<T> a, const uint64_t* keys) {
  const int64_t across = pieces(a.cols, kThreads);
  const int64_t first = block() / across, column = block() % across * kThreads + thread();
  const int64_t id = id_of(keys[first]);
  if ((first > 0 && id_of(keys[first - 1]) == id) || column >= a.cols) return;
  Compute<T> sum = a.dtable[id * a.cols + column];
  int found = kAhead;
  for (int64_t at = first; found == kAhead; at += kAhead) {
    Compute<T> values[kAhead];
    found = 0;
    GPU_UNROLL
    for (int k = 0; k < kAhead; ++k) {
      const bool mine = at + k < a.rows && id_of(keys[at + k]) == id;
      if (mine) values[k] = load(a.dy[row_of(keys[at + k]) * a.cols + column]);
      found += mine ? 1 : 0;
    }
    GPU_UNROLL
    for (int k = 0; k < kAhead; ++k)
      if (k < found) sum += values[k];
  }
  a.dtable[id * a.cols + column] = sum;
}

}  // namespace

template <class T>
void embedding(const EmbeddingArgs<T>& args) {
  launch({"embedding", args.rows, kThreads}, embedding_kernel<T>, args);
}

template <class T>
void embedding_backward(const EmbeddingBackwardArgs<T>& args) {
  const int64_t rows = args.rows;
  const Scratch<uint64_t> one(rows), two(rows > kSortTile ? rows : 0);
  uint64_t *keys = one.data(), *other = two.data();
  launch({"sort_tiles", pieces(rows, kSortTile), kSortThreads}, sort_tiles_kernel, args.ids, rows, keys);
  for (int64_t width = kSortTile; width < rows; width *= 2) {
    launch({"merge", pieces(rows, kThreads), kThreads}, merge_kernel, keys, other, rows, width);
    uint64_t* const merged = other;
    other = keys;
    keys = merged;
  }
  launch({"embedding_backward", rows * pieces(args.cols, kThreads), kThreads}, embedding_backward_kernel<T>, args,
         keys);
}

#define MOTLEY_INSTANTIATE(T)                          \
  template void embedding<T>(const EmbeddingArgs<T>&); \
  template void embedding_backward<T>(const EmbeddingBackwardArgs<T>&);
MOTLEY_FOR_EACH_TYPE(MOTLEY_INSTANTIATE)

}  // namespace motley::kernels::GPU_NAMESPACE
