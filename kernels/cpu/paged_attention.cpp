#include <algorithm>

#include "kernels/attention.h"
#include "kernels/cpu/attention_row.h"
#include "kernels/cpu/instantiate.h"
#include "kernels/cpu/kv_format.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/transpose.h"
#include "kernels/parallel.h"

namespace motley::kernels::cpu {
namespace {

/// Positions [0, count) of one head, decoded to [count][head_dim]. One-byte codes go through a table of all values.
template <Format F, class T>
void decode_head(const void* cache, const PagedAttentionArgs<T>& args, const int32_t* pages, int64_t kv_head,
                 int64_t count, const Compute<T>* table, Compute<T>* out) {
  using Code = typename KvCode<F>::type;
  const Compute<T> scale = static_cast<Compute<T>>(args.kv_scale);
  for (int64_t i = 0; i < count; ++i, out += args.head_dim) {
    const int64_t place = pages[i / args.page_size] * args.page_size + i % args.page_size;
    const Code* in = static_cast<const Code*>(cache) + (place * args.kv_heads + kv_head) * args.head_dim;
    if (std::is_same_v<Code, T> && args.kv_scale == 1.0) {
      load(out, reinterpret_cast<const T*>(in), args.head_dim);
    } else if constexpr (sizeof(Code) == 1) {
      for (int64_t d = 0; d < args.head_dim; ++d) out[d] = table[in[d]];
    } else {
      for (int64_t d = 0; d < args.head_dim; ++d) out[d] = load(decode_kv<F, T>(in[d], scale));
    }
  }
}

/// Rows [begin, end) share one sequence: its keys and values are decoded once, up to the largest position.
template <Format F, class T>
void attend_rows(const PagedAttentionArgs<T>& args, int64_t begin, int64_t end, int64_t kv_head,
                 const Compute<T>* table) {
  using C = Compute<T>;
  const int64_t head_dim = args.head_dim, group = args.heads / args.kv_heads;
  const int64_t count = *std::max_element(args.positions + begin, args.positions + end) + 1;
  const int64_t padded = padded_keys(count), size = padded * head_dim;
  C* weights = scratch<struct PagedRows, C>(padded + 3 * size + 2 * head_dim);
  C *keys = weights + padded, *blocks = keys + size, *values = blocks + size, *q = values + size, *out = q + head_dim;
  decode_head<F>(args.keys, args, args.page_table[begin], kv_head, count, table, keys);
  decode_head<F>(args.values, args, args.page_table[begin], kv_head, count, table, values);
  std::fill(keys + count * head_dim, keys + size, C{0});
  for (int64_t j = 0; j < padded; j += kKeyBlock)
    transpose16(keys + j * head_dim, head_dim, head_dim, blocks + j * head_dim);
  for (int64_t r = begin; r < end; ++r) {
    for (int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
      const int64_t at = (r * args.heads + h) * head_dim;
      load(q, args.q + at, head_dim);
      attend(q, blocks, values, args.positions[r] + 1, head_dim, static_cast<C>(args.scale), weights, out);
      store(args.y + at, out, head_dim);
    }
  }
}

}  // namespace

template <class T>
void paged_attention(const PagedAttentionArgs<T>& args) {
  using C = Compute<T>;
  if (args.rows == 0) return;
  int64_t* starts = scratch<struct PagedSequences, int64_t>(args.rows + 1);
  int64_t sequences = 0, keys = 0;
  for (int64_t r = 0; r < args.rows; ++r) {
    keys += args.positions[r] + 1;
    if (r == 0 || args.page_table[r] != args.page_table[r - 1]) starts[sequences++] = r;
  }
  starts[sequences] = args.rows;
  const int64_t items = sequences * args.kv_heads;
  const int64_t work = 1 + keys * args.heads * args.head_dim / items;
  visit_kv_format(args.kv_format, [&]<Format F>(std::integral_constant<Format, F>) {
    C table[256];
    if constexpr (sizeof(typename KvCode<F>::type) == 1)
      for (int code = 0; code < 256; ++code)
        table[code] = load(decode_kv<F, T>(static_cast<uint8_t>(code), static_cast<C>(args.kv_scale)));
    parallel_for(items, 1 + kPieceElements / work, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t* rows = starts + i / args.kv_heads;
        attend_rows<F>(args, rows[0], rows[1], i % args.kv_heads, table);
      }
    });
  });
}

template <class T>
void cache_write(const CacheWriteArgs<T>& args) {
  const int64_t row = args.kv_heads * args.head_dim;
  const Compute<T> scale = static_cast<Compute<T>>(args.kv_scale);
  visit_kv_format(args.kv_format, [&]<Format F>(std::integral_constant<Format, F>) {
    for (int64_t r = 0; r < args.rows; ++r) {
      const int64_t position = args.positions[r];
      const int64_t page = args.page_table[r][position / args.page_size];
      const int64_t place = page * args.page_size + position % args.page_size;
      auto* out = static_cast<typename KvCode<F>::type*>(args.cache) + place * row;
      for (int64_t i = 0; i < row; ++i) out[i] = encode_kv<F>(args.rows_in[r * row + i], scale);
    }
  });
}

#define MOTLEY_INSTANTIATE(T)                                     \
  template void paged_attention<T>(const PagedAttentionArgs<T>&); \
  template void cache_write<T>(const CacheWriteArgs<T>&);
MOTLEY_FOR_EACH_TYPE(MOTLEY_INSTANTIATE)

}  // namespace motley::kernels::cpu
