// The vectorized part of attention's backward pass: one tile of keys against a block of query rows, one body per
// instruction set. Layouts as in attention_tile.h.
#pragma once

#include "kernels/cpu/attention_tile.h"

namespace motley::kernels::cpu {

/// Rows ascend by position; their buffers hold a multiple of kRowTile of them. dq, dk and dv are added to; either dq or
/// both of dk and dv may be null.
template <class C>
struct BackwardTile {
  const C *q, *dy;            // packed
  const C *q_rows, *dy_rows;  // [rows][padded]
  const C *lse, *mean;        // [rows], mean = dy . y
  const int64_t* limits;      // [rows], the positions from 0 on that a row attends to
  C *weights, *slopes;        // [rows][kKeyTile], scratch
  C* dq;                      // [rows][padded]
  const C *key_panels, *value_panels;
  const C* keys;  // [kKeyTile][padded]
  C *dk, *dv;     // [kKeyTile][padded]
  int64_t rows, head_dim, padded;
  int64_t first;  // position of the tile's first key
  C scale;
};
void differentiate_tile(const BackwardTile<float>& tile);
void differentiate_tile(const BackwardTile<double>& tile);

}  // namespace motley::kernels::cpu
