// Packed sequences cut into tiles, without a table of them: the host sees their rows alone. Used by attention and by
// its backward pass.
#pragma once

#include "kernels/cuda/attention_tile.h"

namespace motley::kernels::GPU_NAMESPACE {

/// Sequences cut into tiles of `size` rows, `group` rows a position. Those of sequence s have the numbers from
/// starts[s] * group / size + s on: as many as it needs, or one more, which is empty.
struct PackedTiles {
  int64_t group, size;
  constexpr int64_t count(int64_t rows, int64_t sequences) const { return rows * group / size + sequences; }
};
struct PackedTile {
  int64_t start, length;  // of the sequence, in positions
  int64_t first;          // row of the tile within it; not below length * group: there is none
};
GPU_DEVICE PackedTile packed_tile(const PackedTiles& tiles, const int32_t* starts, int64_t sequences, int64_t number) {
  int64_t begin = 0, end = sequences;  // the last sequence whose numbers begin at or below `number`
  while (end - begin > 1) {
    const int64_t middle = (begin + end) / 2;
    if (tiles.count(starts[middle], middle) <= number)
      begin = middle;
    else
      end = middle;
  }
  return {starts[begin], starts[begin + 1] - starts[begin], (number - tiles.count(starts[begin], begin)) * tiles.size};
}

/// A block's part: tile, head of keys and columns of head_dim. Numbers of tiles ascend slowest.
struct PackedPart {
  int64_t tile, kv_head, column;
};
template <class C>
GPU_DEVICE PackedPart packed_part(int64_t number, int64_t kv_heads, int64_t head_dim) {
  const int64_t chunks = pieces(head_dim, kColumns<C>);
  return {number / (kv_heads * chunks), number / chunks % kv_heads, number % chunks * kColumns<C>};
}
template <class C>
constexpr int64_t packed_parts(int64_t tiles, int64_t kv_heads, int64_t head_dim) {
  return tiles * kv_heads * pieces(head_dim, kColumns<C>);
}

/// Keys and values of one sequence and head of keys. Place: of a position's row.
template <class T>
struct PackedKeys {
  const T *keys, *values;
  int64_t start, kv_heads, kv_head, head_dim;
  GPU_DEVICE int64_t place(int64_t position) const { return ((start + position) * kv_heads + kv_head) * head_dim; }
  GPU_DEVICE Compute<T> key(int64_t at) const { return load(keys[at]); }
  GPU_DEVICE Compute<T> value(int64_t at) const { return load(values[at]); }
};

/// Rows of one sequence and head of keys: the heads of the group at each position. Place: of a row among [rows, heads].
struct PackedRows {
  int64_t start, heads, group, kv_head;
  GPU_DEVICE int64_t place(int64_t row) const { return (start + row / group) * heads + kv_head * group + row % group; }
  /// Positions that the row attends to.
  GPU_DEVICE int64_t limit(int64_t row) const { return row / group + 1; }
};

}  // namespace motley::kernels::GPU_NAMESPACE
