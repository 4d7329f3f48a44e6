// Query rows that share their keys, tile of keys by tile: what the packed pass and the paged cache have in common, so
// that their bits agree.
//
// Positions are taken in blocks of kPositionBlock. A block is reduced from scratch, tile after tile; blocks are then
// combined in order. Threads may share a long context by blocks without changing a bit.
#pragma once

#include <algorithm>
#include <limits>
#include <utility>

#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/elements.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/transpose.h"
#include "kernels/math.h"

namespace motley::kernels::cpu {

constexpr int64_t kPositionBlock = 4096;
static_assert(kPositionBlock % kKeyTile == 0);

/// Where keys or values come from: rows of head_dim elements by position and head of keys.
template <class C>
struct KeyRows {
  /// out[i][stride] = positions first .. first + count - 1. Asks for half of `ahead`'s lines meanwhile.
  virtual void load(int64_t kv_head, int64_t first, int64_t count, C* out, int64_t stride, Ahead& ahead) const = 0;
  /// Adds the rows of a tile that will be loaded next, if there is anything to gain.
  virtual void announce(int64_t kv_head, int64_t first, int64_t count, Ahead& ahead) const = 0;

 protected:
  ~KeyRows() = default;
};

/// How much a row block's buffers hold: bounded by tiles, whatever the length.
struct RowBlockSize {
  int64_t rows;      // of one head of keys, rounded up to kRowTile
  int64_t kv_heads;  // processed together
  int64_t head_dim;
  int64_t padded() const { return rounded_up(head_dim, kKeyPanel); }
  int64_t all_rows() const { return rows * kv_heads; }
  int64_t elements() const {
    const int64_t state = rounded_up(all_rows(), kKeyPanel) + all_rows() * (kKeyPanel + padded());
    return 2 * state + all_rows() * head_dim + (kKeyPanel + 2 * kKeyTile) * padded() + kRowTile * head_dim;
  }
};

template <class C>
class RowBlock {
 public:
  /// Buffers of this thread; every row is empty until set.
  RowBlock(RowBlockSize size, C scale)
      : size_(size),
        padded_(size.padded()),
        scale_(scale),
        limits_(scratch<struct RowLimits, int64_t>(size.all_rows())) {
    const int64_t rows = size.all_rows();
    C* at = scratch<struct RowBlockBuffers, C>(size.elements());
    const auto take = [&](int64_t count) { return std::exchange(at, at + count); };
    keys_ = take(kKeyPanel * padded_);
    values_ = take(kKeyTile * padded_);
    panels_ = take(kKeyTile * padded_);
    for (AttendState<C>* state : {&current_, &total_})
      *state = {take(rounded_up(rows, kKeyPanel)), take(rows * kKeyPanel), take(rows * padded_)};
    q_ = take(rows * size.head_dim);
    staged_ = take(kRowTile * size.head_dim);
    if (padded_ > size.head_dim) std::fill_n(keys_, (kKeyPanel + kKeyTile) * padded_, C{0});
    std::fill_n(limits_, rows, int64_t{0});
  }

  /// Rows first .. first + count - 1 of a head of keys, from a multiple of kRowTile on. source(i) is row i's q.
  template <class Source>
  void set_rows(int64_t kv_head, int64_t first, int64_t count, Source source) {
    const int64_t head_dim = size_.head_dim;
    for (int64_t i = 0; i < count; ++i) load(staged_ + i * head_dim, source(first + i), head_dim);
    std::fill(staged_ + count * head_dim, staged_ + kRowTile * head_dim, C{0});
    transpose_rows<kRowTile>(staged_, head_dim, head_dim, q_ + (kv_head * size_.rows + first) * head_dim);
  }
  void set_limit(int64_t kv_head, int64_t row, int64_t limit) { limits_[kv_head * size_.rows + row] = limit; }
  int64_t limit(int64_t r) const { return limits_[r]; }

  /// Attends to positions [begin, end), begin a multiple of kPositionBlock.
  void attend(const KeyRows<C>& keys, const KeyRows<C>& values, int64_t first_kv_head, int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; block += kPositionBlock) {
      clear(current_);
      for (int64_t first = block; first < std::min(end, block + kPositionBlock); first += kKeyTile)
        attend_tile(keys, values, first_kv_head, first, end);
      for (int64_t r = 0; r < size_.all_rows(); ++r) current_.sums[r] = add_lanes(current_.sums + r * kKeyPanel);
      if (block == begin)
        std::swap(current_, total_);
      else
        for (int64_t r = 0; r < size_.all_rows(); ++r)
          if (limits_[r] > block) add(r, current_.largest[r], current_.sums[r], current_.out + r * padded_);
    }
  }
  /// Combines row r with a later block of positions.
  void add(int64_t r, C largest, C sum, const C* out) {
    const C most = std::max(total_.largest[r], largest);
    const C shift = most == -std::numeric_limits<C>::infinity() ? C{0} : most;
    const C mine = exponential(total_.largest[r] - shift), other = exponential(largest - shift);
    total_.largest[r] = most;
    total_.sums[r] = std::fma(total_.sums[r], mine, sum * other);
    C* row = total_.out + r * padded_;
    for (int64_t d = 0; d < size_.head_dim; ++d) row[d] = std::fma(row[d], mine, out[d] * other);
  }

  /// Row r's result, and its log of the sum of exp(scores).
  const C* finish(int64_t r) {
    C* row = total_.out + r * padded_;
    const C sum = total_.sums[r];
    for (int64_t d = 0; d < size_.head_dim; ++d) row[d] /= sum;
    return row;
  }
  C log_sum(int64_t r) const { return total_.largest[r] + logarithm(total_.sums[r]); }
  const AttendState<C>& total() const { return total_; }
  AttendState<C>& total() { return total_; }

 private:
  void clear(const AttendState<C>& state) {
    const int64_t rows = size_.all_rows();
    std::fill_n(state.largest, rows, -std::numeric_limits<C>::infinity());
    std::fill_n(state.sums, rows * kKeyPanel, C{0});
    std::fill_n(state.out, rows * padded_, C{0});
  }
  void attend_tile(const KeyRows<C>& keys, const KeyRows<C>& values, int64_t first_kv_head, int64_t first,
                   int64_t end) {
    const int64_t count = std::min(kKeyTile, end - first);
    for (int64_t h = 0; h < size_.kv_heads; ++h) {
      // The next head of this tile, or the first one of the next tile.
      const int64_t next_head = h + 1 < size_.kv_heads ? h + 1 : 0, next = next_head == 0 ? first + kKeyTile : first;
      Ahead ahead;
      keys.announce(first_kv_head + next_head, next, std::min(kKeyTile, end - next), ahead);
      values.announce(first_kv_head + next_head, next, std::min(kKeyTile, end - next), ahead);
      for (int64_t i = 0; i < count; i += kKeyPanel) {  // a panel at a time stays in the first cache
        const int64_t rows = std::min(kKeyPanel, count - i);
        keys.load(first_kv_head + h, first + i, rows, keys_, padded_, ahead);
        pack_panels(keys_, rows, padded_, panels_ + i * padded_);
      }
      values.load(first_kv_head + h, first, count, values_, padded_, ahead);
      const int64_t row = h * size_.rows;
      cpu::attend_tile(
          AttendTile<C>{q_ + row * size_.head_dim,
                        limits_ + row,
                        {current_.largest + row, current_.sums + row * kKeyPanel, current_.out + row * padded_},
                        panels_,
                        values_,
                        size_.rows,
                        size_.head_dim,
                        padded_,
                        first,
                        scale_,
                        &ahead,
                        ahead.lines_of(2 * (size_.head_dim + kKeyTile))});
    }
  }

  RowBlockSize size_;
  int64_t padded_;
  C scale_;
  int64_t* limits_;
  C *keys_, *values_, *panels_, *q_, *staged_;
  AttendState<C> current_, total_;  // sums of total_ are one element a row
};

}  // namespace motley::kernels::cpu
