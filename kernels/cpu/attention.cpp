#include "kernels/attention.h"

#include <algorithm>

#include "kernels/cpu/attention_row.h"
#include "kernels/cpu/elements.h"
#include "kernels/cpu/instantiate.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/transpose.h"
#include "kernels/parallel.h"

namespace motley::kernels::cpu {
namespace {

/// Rows [begin, begin + count) of one head as [count][head_dim].
template <class T>
void gather_head(const T* in, int64_t begin, int64_t count, int64_t heads, int64_t head, int64_t head_dim,
                 Compute<T>* out) {
  for (int64_t i = 0; i < count; ++i) load(out + i * head_dim, in + ((begin + i) * heads + head) * head_dim, head_dim);
}
/// Keys (or, backward, values) of one head in blocks of sixteen: [block][head_dim][16], zeros after the last.
template <class T>
void gather_blocks(const T* in, int64_t begin, int64_t count, int64_t heads, int64_t head, int64_t head_dim,
                   Compute<T>* out) {
  Compute<T>* rows = scratch<struct AttentionBlock, Compute<T>>(kKeyBlock * head_dim);
  for (int64_t i = 0; i < count; i += kKeyBlock, out += kKeyBlock * head_dim) {
    const int64_t valid = std::min(kKeyBlock, count - i);
    gather_head(in, begin + i, valid, heads, head, head_dim, rows);
    std::fill(rows + valid * head_dim, rows + kKeyBlock * head_dim, Compute<T>{0});
    transpose16(rows, head_dim, head_dim, out);
  }
}
template <class T>
void scatter_head(T* out, int64_t begin, int64_t count, int64_t heads, int64_t head, int64_t head_dim,
                  const Compute<T>* in) {
  for (int64_t i = 0; i < count; ++i) store(out + ((begin + i) * heads + head) * head_dim, in + i * head_dim, head_dim);
}

/// Calls body(first row, length, kv head) for every sequence and head of keys; these are what threads share.
template <class Args, class Body>
void for_each_kv_head(const Args& args, Body body) {
  const int64_t rows = args.sequences == 0 ? 0 : args.starts[args.sequences] - args.starts[0];
  if (rows == 0) return;
  const int64_t length = rows / args.sequences + 1;
  const int64_t work = length * length / 2 * args.head_dim * args.heads / args.kv_heads;
  parallel_for(args.sequences * args.kv_heads, 1 + kPieceElements / work, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int32_t* start = args.starts + item / args.kv_heads;
      body(start[0], start[1] - start[0], item % args.kv_heads);
    }
  });
}

}  // namespace

template <class T>
void attention(const AttentionArgs<T>& args) {
  using C = Compute<T>;
  const int64_t head_dim = args.head_dim, group = args.heads / args.kv_heads;
  for_each_kv_head(args, [&](int64_t first, int64_t length, int64_t kv_head) {
    const int64_t padded = padded_keys(length);
    C* weights = scratch<struct AttentionRows, C>(padded + (padded + length + 2) * head_dim);
    C *keys = weights + padded, *values = keys + padded * head_dim;
    C *q = values + length * head_dim, *out = q + head_dim;
    gather_blocks(args.k, first, length, args.kv_heads, kv_head, head_dim, keys);
    gather_head(args.v, first, length, args.kv_heads, kv_head, head_dim, values);
    for (int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
      for (int64_t i = 0; i < length; ++i) {
        const int64_t at = (first + i) * args.heads + h;
        load(q, args.q + at * head_dim, head_dim);
        const C lse = attend(q, keys, values, i + 1, head_dim, static_cast<C>(args.scale), weights, out);
        store(args.y + at * head_dim, out, head_dim);
        if (args.lse != nullptr) args.lse[at] = lse;
      }
    }
  });
}

namespace {

/// The gradients that one query row of one head gives: its own dq, and its part of dk and dv.
template <class C>
struct BackwardRow {
  const C *q, *y, *dy, *keys;          // keys [count][head_dim]
  const C *key_blocks, *value_blocks;  // [block][head_dim][16]
  C *weights, *slopes;                 // [padded_keys(count)]
  C *dq, *dkeys, *dvalues;
  C lse, scale;
};
template <class C>
void attend_backward(const BackwardRow<C>& row, int64_t count, int64_t head_dim) {
  attention_scores(row.q, row.key_blocks, count, head_dim, row.scale, row.weights);
  attention_scores(row.dy, row.value_blocks, count, head_dim, C{1}, row.slopes);
  const C mean = dot_lanes(row.dy, row.y, head_dim);
  const int64_t padded = padded_keys(count);
  for (int64_t j = 0; j < padded; ++j) row.weights[j] = exponential(row.weights[j] - row.lse);
  for (int64_t j = 0; j < padded; ++j) row.slopes[j] = row.weights[j] * (row.slopes[j] - mean) * row.scale;
  weighted_sum(row.slopes, row.keys, count, head_dim, row.dq);
  for (int64_t j = 0; j < count; ++j) {
    const C slope = row.slopes[j], weight = row.weights[j];
    C* dkey = row.dkeys + j * head_dim;
    C* dvalue = row.dvalues + j * head_dim;
    for (int64_t d = 0; d < head_dim; ++d) dkey[d] = std::fma(slope, row.q[d], dkey[d]);
    for (int64_t d = 0; d < head_dim; ++d) dvalue[d] = std::fma(weight, row.dy[d], dvalue[d]);
  }
}

}  // namespace

// dk and dv of a key are summed over the heads of its group ascending, then over rows ascending.
template <class T>
void attention_backward(const AttentionBackwardArgs<T>& args) {
  using C = Compute<T>;
  const int64_t head_dim = args.head_dim, group = args.heads / args.kv_heads;
  for_each_kv_head(args, [&](int64_t first, int64_t length, int64_t kv_head) {
    const int64_t size = length * head_dim, padded = padded_keys(length);
    C* weights = scratch<struct AttentionRows, C>(2 * padded * (1 + head_dim) + 3 * size + 4 * head_dim);
    C *key_blocks = weights + 2 * padded, *value_blocks = key_blocks + padded * head_dim;
    C *keys = value_blocks + padded * head_dim, *dkeys = keys + size, *dvalues = dkeys + size;
    C *q = dvalues + size, *y = q + head_dim, *dy = y + head_dim, *dq = dy + head_dim;
    gather_head(args.k, first, length, args.kv_heads, kv_head, head_dim, keys);
    gather_blocks(args.k, first, length, args.kv_heads, kv_head, head_dim, key_blocks);
    gather_blocks(args.v, first, length, args.kv_heads, kv_head, head_dim, value_blocks);
    std::fill_n(dkeys, 2 * size, C{0});
    for (int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
      for (int64_t i = 0; i < length; ++i) {
        const int64_t at = (first + i) * args.heads + h;
        load(q, args.q + at * head_dim, head_dim);
        load(y, args.y + at * head_dim, head_dim);
        load(dy, args.dy + at * head_dim, head_dim);
        attend_backward<C>({q, y, dy, keys, key_blocks, value_blocks, weights, weights + padded, dq, dkeys, dvalues,
                            args.lse[at], static_cast<C>(args.scale)},
                           i + 1, head_dim);
        store(args.dq + at * head_dim, dq, head_dim);
      }
    }
    scatter_head(args.dk, first, length, args.kv_heads, kv_head, head_dim, dkeys);
    scatter_head(args.dv, first, length, args.kv_heads, kv_head, head_dim, dvalues);
  });
}

#define MOTLEY_INSTANTIATE(T)                          \
  template void attention<T>(const AttentionArgs<T>&); \
  template void attention_backward<T>(const AttentionBackwardArgs<T>&);
MOTLEY_FOR_EACH_TYPE(MOTLEY_INSTANTIATE)

}  // namespace motley::kernels::cpu
