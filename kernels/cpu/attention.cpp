#include "kernels/attention.h"

#include "kernels/cpu/attention_packed.h"
#include "kernels/cpu/instantiate.h"

namespace motley::kernels::cpu {

template <class T>
void attention(const AttentionArgs<T>& args) {
  using C = Compute<T>;
  const int64_t head_dim = args.head_dim, group = args.heads / args.kv_heads;
  for_each_packed_block(args, [&](const PackedBlock& block) {
    const int64_t rows = (block.end - block.begin) * group;
    // Row r is head r % group of the group at position begin + r / group; `at` is its place among all heads' rows.
    const auto at = [&](int64_t r) {
      return (block.start + block.begin + r / group) * args.heads + block.kv_head * group + r % group;
    };
    RowBlock<C> state({rounded_up(rows, kRowTile), 1, head_dim}, static_cast<C>(args.scale));
    for (int64_t r = 0; r < rows; r += kRowTile)
      state.set_rows(0, r, std::min(kRowTile, rows - r), [&](int64_t i) { return args.q + at(i) * head_dim; });
    for (int64_t r = 0; r < rows; ++r) state.set_limit(0, r, block.begin + r / group + 1);
    const int64_t keys = block.start * args.kv_heads * head_dim;
    state.attend(PackedKeyRows<T>(args.k + keys, args.kv_heads, head_dim),
                 PackedKeyRows<T>(args.v + keys, args.kv_heads, head_dim), block.kv_head, 0, block.end);
    for (int64_t r = 0; r < rows; ++r) {
      store(args.y + at(r) * head_dim, state.finish(r), head_dim);
      if (args.lse != nullptr) args.lse[at(r)] = state.log_sum(r);
    }
  });
}

#define MOTLEY_INSTANTIATE(T) template void attention<T>(const AttentionArgs<T>&);
MOTLEY_FOR_EACH_TYPE(MOTLEY_INSTANTIATE)

}  // namespace motley::kernels::cpu
