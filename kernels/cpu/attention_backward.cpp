#include "kernels/attention.h"
#include "kernels/cpu/attention_backward_tile.h"
#include "kernels/cpu/attention_packed.h"
#include "kernels/cpu/instantiate.h"

namespace motley::kernels::cpu {
namespace {

/// Tiles whose dk and dv one thread sums at a time, when threads share a sequence: each block of rows that it reads
/// then serves several.
constexpr int64_t kTilesTogether = 4;
/// Elements of one sequence's dk up to which dk and dv are summed while dq is, in buffers of that size. Beyond, they
/// are a pass of their own, and no buffer grows with the length.
constexpr int64_t kLargestSums = int64_t{1} << 20;

/// One tile of keys and values in the layouts of attention_backward_tile.h.
template <class T>
class BackwardKeys {
  using C = Compute<T>;

 public:
  static int64_t elements(int64_t head_dim) { return 4 * kKeyTile * rounded_up(head_dim, kKeyPanel); }
  BackwardKeys(int64_t head_dim, C* buffer) : size_(elements(head_dim) / 4), keys_(buffer) {}
  void load(const AttentionBackwardArgs<T>& args, const PackedBlock& block, int64_t first, int64_t count) {
    const int64_t padded = size_ / kKeyTile;
    if (padded > args.head_dim) std::fill_n(keys_, 2 * size_, C{0});
    const int64_t start = block.start * args.kv_heads * args.head_dim;
    C* values = keys_ + size_;
    PackedKeyRows<T>(args.k + start, args.kv_heads, args.head_dim).copy(block.kv_head, first, count, keys_, padded);
    PackedKeyRows<T>(args.v + start, args.kv_heads, args.head_dim).copy(block.kv_head, first, count, values, padded);
    pack_panels(keys_, count, padded, keys_ + 2 * size_);
    pack_panels(values, count, padded, keys_ + 3 * size_);
  }
  const C* keys() const { return keys_; }
  const C* key_panels() const { return keys_ + 2 * size_; }
  const C* value_panels() const { return keys_ + 3 * size_; }

 private:
  int64_t size_;
  C* keys_;
};

/// One block of query rows.
template <class T>
class BackwardRows {
  using C = Compute<T>;

 public:
  explicit BackwardRows(const AttentionBackwardArgs<T>& args)
      : args_(args), group_(args.heads / args.kv_heads), padded_(rounded_up(args.head_dim, kKeyPanel)) {
    const int64_t rows = rounded_up(block_positions(group_) * group_, kKeyPanel);
    C* at =
        scratch<struct BackwardRowBuffers, C>(rows * (2 * kKeyTile + 3 * padded_ + 2 * args.head_dim + 2) + padded_);
    const auto take = [&](int64_t count) { return std::exchange(at, at + count); };
    weights_ = take(rows * kKeyTile);
    slopes_ = take(rows * kKeyTile);
    q_rows_ = take(rows * padded_);
    dy_rows_ = take(rows * padded_);
    dq_ = take(rows * padded_);
    lse_ = take(rows);
    mean_ = take(rows);
    q_ = take(rows * args.head_dim);
    dy_ = take(rows * args.head_dim);
    y_ = take(args.head_dim);
    limits_ = scratch<struct BackwardLimits, int64_t>(rows);
    if (padded_ > args.head_dim) std::fill_n(q_rows_, 2 * rows * padded_, C{0});
  }

  void load(const PackedBlock& block) {
    const int64_t head_dim = args_.head_dim;
    block_ = block;
    rows_ = (block.end - block.begin) * group_;
    for (int64_t r = 0; r < rows_; ++r) {
      C *q = q_rows_ + r * padded_, *dy = dy_rows_ + r * padded_;
      cpu::load(q, args_.q + place(r) * head_dim, head_dim);
      cpu::load(dy, args_.dy + place(r) * head_dim, head_dim);
      cpu::load(y_, args_.y + place(r) * head_dim, head_dim);
      lse_[r] = args_.lse[place(r)];
      mean_[r] = dot_lanes(dy, y_, head_dim);
      limits_[r] = block.begin + r / group_ + 1;
    }
    for (int64_t r = 0; r < rows_; r += kRowTile) {
      transpose_rows<kRowTile>(q_rows_ + r * padded_, padded_, head_dim, q_ + r * head_dim);
      transpose_rows<kRowTile>(dy_rows_ + r * padded_, padded_, head_dim, dy_ + r * head_dim);
    }
    std::fill_n(dq_, rounded_up(rows_, kRowTile) * padded_, C{0});
  }
  void differentiate(const BackwardKeys<T>& keys, int64_t first, bool with_dq, C* dk, C* dv) {
    differentiate_tile(BackwardTile<C>{q_,
                                       dy_,
                                       q_rows_,
                                       dy_rows_,
                                       lse_,
                                       mean_,
                                       limits_,
                                       weights_,
                                       slopes_,
                                       with_dq ? dq_ : nullptr,
                                       keys.key_panels(),
                                       keys.value_panels(),
                                       keys.keys(),
                                       dk,
                                       dv,
                                       rows_,
                                       args_.head_dim,
                                       padded_,
                                       first,
                                       static_cast<C>(args_.scale)});
  }
  void store_dq() const {
    for (int64_t r = 0; r < rows_; ++r) store(args_.dq + place(r) * args_.head_dim, dq_ + r * padded_, args_.head_dim);
  }

 private:
  int64_t place(int64_t r) const {
    return (block_.start + block_.begin + r / group_) * args_.heads + block_.kv_head * group_ + r % group_;
  }

  const AttentionBackwardArgs<T>& args_;
  int64_t group_, padded_, rows_ = 0;
  PackedBlock block_{};
  C *weights_, *slopes_, *q_rows_, *dy_rows_, *dq_, *lse_, *mean_, *q_, *dy_, *y_;
  int64_t* limits_;
};

/// Sums of `rows` keys from position `first` on to where they belong.
template <class T>
void store_keys(const AttentionBackwardArgs<T>& args, const PackedBlock& block, int64_t first, int64_t rows,
                const Compute<T>* dk, const Compute<T>* dv) {
  const int64_t padded = rounded_up(args.head_dim, kKeyPanel);
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t at = ((block.start + first + i) * args.kv_heads + block.kv_head) * args.head_dim;
    store(args.dk + at, dk + i * padded, args.head_dim);
    store(args.dv + at, dv + i * padded, args.head_dim);
  }
}

/// All gradients of one sequence and head of keys: blocks of rows ascending, tiles of keys ascending.
template <class T>
void differentiate_sequence(const AttentionBackwardArgs<T>& args, PackedBlock block, int64_t length) {
  using C = Compute<T>;
  const int64_t step = block_positions(args.heads / args.kv_heads), padded = rounded_up(args.head_dim, kKeyPanel);
  const int64_t sums = rounded_up(length, kKeyTile) * padded, tile = BackwardKeys<T>::elements(args.head_dim);
  C* dk = scratch<struct BackwardSums, C>(2 * sums + tile);
  C* dv = dk + sums;
  std::fill_n(dk, 2 * sums, C{0});
  BackwardRows<T> rows(args);
  BackwardKeys<T> keys(args.head_dim, dv + sums);
  for (block.begin = 0; block.begin < length; block.begin += step) {
    block.end = std::min(length, block.begin + step);
    rows.load(block);
    for (int64_t first = 0; first < block.end; first += kKeyTile) {
      keys.load(args, block, first, std::min(kKeyTile, block.end - first));
      rows.differentiate(keys, first, true, dk + first * padded, dv + first * padded);
    }
    rows.store_dq();
  }
  store_keys(args, block, 0, length, dk, dv);
}

/// dq alone, for one block of rows.
template <class T>
void differentiate_queries(const AttentionBackwardArgs<T>& args, const PackedBlock& block) {
  using C = Compute<T>;
  BackwardRows<T> rows(args);
  const int64_t tile = BackwardKeys<T>::elements(args.head_dim);
  BackwardKeys<T> keys(args.head_dim, scratch<struct QueryKeys, C>(tile));
  rows.load(block);
  for (int64_t first = 0; first < block.end; first += kKeyTile) {
    keys.load(args, block, first, std::min(kKeyTile, block.end - first));
    rows.differentiate(keys, first, true, nullptr, nullptr);
  }
  rows.store_dq();
}

/// dk and dv alone, for the keys at positions [begin, end) of one sequence.
template <class T>
void differentiate_keys(const AttentionBackwardArgs<T>& args, PackedBlock block, int64_t begin, int64_t end,
                        int64_t length) {
  using C = Compute<T>;
  const int64_t step = block_positions(args.heads / args.kv_heads), padded = rounded_up(args.head_dim, kKeyPanel);
  const int64_t sums = kTilesTogether * kKeyTile * padded, tile = BackwardKeys<T>::elements(args.head_dim);
  C* dk = scratch<struct BackwardSums, C>(2 * sums + kTilesTogether * tile);
  C* dv = dk + sums;
  std::fill_n(dk, 2 * sums, C{0});
  const auto keys_at = [&](int64_t first) { return dv + sums + (first - begin) / kKeyTile * tile; };
  for (int64_t first = begin; first < end; first += kKeyTile)
    BackwardKeys<T>(args.head_dim, keys_at(first)).load(args, block, first, std::min(kKeyTile, end - first));
  BackwardRows<T> rows(args);
  for (block.begin = begin / step * step; block.begin < length; block.begin += step) {
    block.end = std::min(length, block.begin + step);
    rows.load(block);
    for (int64_t first = begin; first < std::min(end, block.end); first += kKeyTile)
      rows.differentiate(BackwardKeys<T>(args.head_dim, keys_at(first)), first, false, dk + (first - begin) * padded,
                         dv + (first - begin) * padded);
  }
  store_keys(args, block, begin, end - begin, dk, dv);
}

/// What the sequences' pairs of positions say about how to share the work.
struct BackwardWork {
  int64_t pairs = 0, most = 0, longest = 0;
};
BackwardWork work_of(const int32_t* starts, int64_t sequences) {
  BackwardWork work;
  for (int64_t s = 0; s < sequences; ++s) {
    const int64_t length = starts[s + 1] - starts[s], pairs = length * (length + 1) / 2;
    work.pairs += pairs;
    work.most = std::max(work.most, pairs);
    work.longest = std::max(work.longest, length);
  }
  return work;
}

}  // namespace

// Every element of dq, dk and dv is one chain: dq over keys ascending, dk and dv over rows ascending and, within a row,
// over the heads of the group ascending. So it does not matter how blocks, tiles and threads share them.
template <class T>
void attention_backward(const AttentionBackwardArgs<T>& args) {
  const BackwardWork work = work_of(args.starts, args.sequences);
  if (work.pairs == 0) return;
  const bool balanced = work.most * compute_threads() <= work.pairs * args.kv_heads;
  if (balanced && work.longest * rounded_up(args.head_dim, kKeyPanel) <= kLargestSums) {
    const int64_t items = args.sequences * args.kv_heads;
    const int64_t cost = 1 + work.pairs * args.heads * args.head_dim / items;
    parallel_for(items, 1 + kPieceElements / cost, [&](int64_t begin, int64_t end) {
      for (int64_t item = begin; item < end; ++item) {
        const int32_t* start = args.starts + item / args.kv_heads;
        if (start[1] > start[0])
          differentiate_sequence(args, {start[0], 0, 0, item % args.kv_heads}, start[1] - start[0]);
      }
    });
    return;
  }
  for_each_packed_block(args, [&](const PackedBlock& block) { differentiate_queries(args, block); });
  for (int64_t s = 0; s < args.sequences; ++s) {
    const int64_t start = args.starts[s], length = args.starts[s + 1] - start, step = kTilesTogether * kKeyTile;
    const int64_t items = (length + step - 1) / step * args.kv_heads;
    parallel_for(items, 1, [&](int64_t first, int64_t last) {
      for (int64_t item = first; item < last; ++item) {
        const int64_t begin = item / args.kv_heads * step;
        differentiate_keys(args, {start, 0, 0, item % args.kv_heads}, begin, std::min(length, begin + step), length);
      }
    });
  }
}

#define MOTLEY_INSTANTIATE(T) template void attention_backward<T>(const AttentionBackwardArgs<T>&);
MOTLEY_FOR_EACH_TYPE(MOTLEY_INSTANTIATE)

}  // namespace motley::kernels::cpu
