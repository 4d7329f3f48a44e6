// The vectorized part of attention: one tile of keys against many query rows, one body per instruction set, chosen at
// run time. Layouts are the same for every instruction set, and so is every bit of the results.
//
// A tile is kKeyTile positions from a multiple of kKeyTile on. "Panels" hold its rows as [row / 16][head_dim][16], so
// that sixteen scores are the lanes of a vector; "packed" query rows are [row / 8][head_dim][8]. `padded` is head_dim
// rounded up to whole vectors.
#pragma once

#include <cstdint>

namespace motley::kernels::cpu {

constexpr int64_t kKeyTile = 64;
constexpr int64_t kKeyPanel = 16;
constexpr int64_t kRowTile = 8;
constexpr int64_t rounded_up(int64_t count, int64_t unit) { return (count + unit - 1) / unit * unit; }

/// Rows of memory that will be read next, asked for a few lines at a time while something else is computed: all at once
/// they would fill the buffers for lines under way, and computing would wait for them.
class Ahead {
 public:
  void add(const void* row) { rows_[count_++] = static_cast<const char*>(row); }
  void set_bytes(int64_t bytes) { bytes_ = bytes; }  // of each row
  /// Lines at each of `steps` that together ask for all of them, or more.
  int64_t lines_of(int64_t steps) const {
    const int64_t lines = count_ * ((bytes_ + kLineBytes - 1) / kLineBytes);
    return (lines + steps - 1) / steps;
  }
  void ask(int64_t lines) {
    for (; lines > 0 && next_ < count_; --lines) {
      __builtin_prefetch(rows_[next_] + offset_, 0, 2);
      offset_ += kLineBytes;
      if (offset_ < bytes_) continue;
      offset_ = 0;
      ++next_;
    }
  }

 private:
  static constexpr int64_t kLineBytes = 64;
  const char* rows_[2 * kKeyTile];
  int64_t count_ = 0, bytes_ = 0, next_ = 0, offset_ = 0;
};

/// panels = the rows [count][padded] of one tile, transposed. Reads whole groups of sixteen rows.
void pack_panels(const float* rows, int64_t count, int64_t padded, float* panels);
void pack_panels(const double* rows, int64_t count, int64_t padded, double* panels);

/// What a row has gathered so far: the largest score, and relative to its exponential the sum of weights in sixteen
/// lanes by position and the weighted sum of values.
template <class C>
struct AttendState {
  C* largest;  // [rows]
  C* sums;     // [rows][16]
  C* out;      // [rows][padded]
};
/// Rows are a multiple of kRowTile; the last of them may be padding, with limit 0.
template <class C>
struct AttendTile {
  const C* q;             // packed
  const int64_t* limits;  // [rows], the positions from 0 on that a row attends to
  AttendState<C> state;
  const C* key_panels;
  const C* values;  // [kKeyTile][padded]
  int64_t rows, head_dim, padded;
  int64_t first;  // position of the tile's first key
  C scale;
  Ahead* ahead = nullptr;  // what to ask for meanwhile, ahead_lines per step of a product
  int64_t ahead_lines = 0;
};
void attend_tile(const AttendTile<float>& tile);
void attend_tile(const AttendTile<double>& tile);

}  // namespace motley::kernels::cpu
