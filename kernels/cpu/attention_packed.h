// Packed sequences cut into blocks of query rows, which threads share. Used by attention and by its backward pass.
#pragma once

#include "kernels/cpu/attention_rows.h"
#include "kernels/cpu/instantiate.h"
#include "kernels/parallel.h"

namespace motley::kernels::cpu {

/// Query rows of one block: enough that loading a tile of keys costs little beside its products.
constexpr int64_t kQueryRows = 128;
/// Positions of one block, whose rows are the heads of a group at each position.
constexpr int64_t block_positions(int64_t group) { return group >= kQueryRows ? 1 : kQueryRows / group; }

/// Rows of one packed sequence.
template <class T>
struct PackedKeyRows final : KeyRows<Compute<T>> {
  PackedKeyRows(const T* rows, int64_t kv_heads, int64_t head_dim)
      : rows(rows), kv_heads(kv_heads), head_dim(head_dim) {}
  void copy(int64_t kv_head, int64_t first, int64_t count, Compute<T>* out, int64_t stride) const {
    for (int64_t i = 0; i < count; ++i)
      cpu::load(out + i * stride, rows + ((first + i) * kv_heads + kv_head) * head_dim, head_dim);
  }
  void load(int64_t kv_head, int64_t first, int64_t count, Compute<T>* out, int64_t stride, Ahead&) const override {
    copy(kv_head, first, count, out, stride);
  }
  void announce(int64_t, int64_t, int64_t, Ahead&) const override {}
  const T* rows;
  int64_t kv_heads, head_dim;
};

/// One block of rows: positions [begin, end) of the sequence that starts at row `start`.
struct PackedBlock {
  int64_t start, begin, end, kv_head;
};

/// Calls body(PackedBlock) for every block of every sequence and head of keys. Long ones come first, so that threads
/// end together.
template <class Args, class Body>
void for_each_packed_block(const Args& args, Body body) {
  const int64_t group = args.heads / args.kv_heads, step = block_positions(group);
  int64_t* blocks = scratch<struct PackedBlocks, int64_t>(args.sequences + 1);  // before each sequence
  blocks[0] = 0;
  int64_t pairs = 0;
  for (int64_t s = 0; s < args.sequences; ++s) {
    const int64_t length = args.starts[s + 1] - args.starts[s];
    blocks[s + 1] = blocks[s] + (length + step - 1) / step;
    pairs += length * (length + 1) / 2;
  }
  const int64_t items = blocks[args.sequences] * args.kv_heads;
  if (items == 0) return;
  const int64_t work = 1 + pairs * args.heads * args.head_dim / items;
  parallel_for(items, 1 + kPieceElements / work, [&](int64_t first, int64_t last) {
    for (int64_t item = last - 1; item >= first; --item) {
      const int64_t block = item / args.kv_heads;
      const int64_t s = std::upper_bound(blocks, blocks + args.sequences + 1, block) - blocks - 1;
      const int64_t begin = (block - blocks[s]) * step, length = args.starts[s + 1] - args.starts[s];
      body(PackedBlock{args.starts[s], begin, std::min(begin + step, length), item % args.kv_heads});
    }
  });
}

}  // namespace motley::kernels::cpu
