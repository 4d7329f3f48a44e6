// Causal attention with grouped queries. Contract: the result of one query row depends on its own q and on the keys
// and values of positions 0..p of its sequence alone, reduced in an order fixed by absolute positions; so a decode step
// over the cache gives bit for bit what the packed pass gives. A score is one chain over head_dim, times scale.
// Positions are taken in tiles of 64: exp of scores less the largest so far is summed in 16 virtual lanes by position,
// and multiplied with the values in one chain over positions ascending; a tile that raises the largest first scales
// both down. This starts anew every 4096 positions, and such blocks are combined in order. The output is divided by
// the sum at the end. Keys beyond p contribute exactly nothing, whatever they hold.
//
// On a device every pointer is one of its memory, those of a page table included: an array of pointers to arrays. What
// its host needs of them is in the args besides: rows, and the longest context.
#pragma once

#include "kernels/dtype.h"

namespace motley::kernels {

/// Packed variable-length sequences without padding: sequence s owns rows [starts[s], starts[s + 1]).
template <class T>
struct AttentionArgs {
  T* y;                                                // [rows, heads, head_dim]
  Compute<T>* lse;                                     // [rows, heads], log of the sum of exp(scores); may be null
  const T* q;                                          // [rows, heads, head_dim]
  const T* k;                                          // [rows, kv_heads, head_dim], already rounded to the KV format
  const T* v;                                          // [rows, kv_heads, head_dim]
  const int32_t* starts;                               // [sequences + 1]
  int64_t rows, sequences, heads, kv_heads, head_dim;  // rows = starts[sequences]
  double scale;                                        // usually 1 / sqrt(head_dim)
};
template <class T>
struct AttentionBackwardArgs {
  T* dq;
  T* dk;
  T* dv;
  const T* dy;
  const T* y;
  const Compute<T>* lse;
  const T* q;
  const T* k;
  const T* v;
  const int32_t* starts;
  int64_t rows, sequences, heads, kv_heads, head_dim;  // rows = starts[sequences]
  double scale;
};
/// Rows of many sequences over a paged cache. The cache of one layer is `pages` pages of page_size positions:
/// keys[page][position in page][kv_head][head_dim], stored as `kv_format` codes (1, 2 or 4 bytes each).
template <class T>
struct PagedAttentionArgs {
  T* y;        // [rows, heads, head_dim]
  const T* q;  // [rows, heads, head_dim]
  const void* keys;
  const void* values;
  Format kv_format;                  // fp64, fp32, bf16, fp16, e4m3 or e5m2
  double kv_scale;                   // value = code * kv_scale
  const int32_t* const* page_table;  // [rows]: the pages of the row's sequence, in order
  const int32_t* positions;          // [rows]: attends to positions 0..positions[row]
  int64_t rows;
  int64_t longest;  // more than every position
  int64_t heads, kv_heads, head_dim, page_size;
  double scale;
};
/// Writes rows of K or V into their place in the cache, rounded to the cache's format.
template <class T>
struct CacheWriteArgs {
  void* cache;       // keys or values of one layer
  const T* rows_in;  // [rows, kv_heads, head_dim]
  Format kv_format;
  double kv_scale;
  const int32_t* const* page_table;  // [rows]
  const int32_t* positions;          // [rows]
  int64_t rows, kv_heads, head_dim, page_size;
};
constexpr int64_t kv_bytes(Format format) {
  return format == Format::fp64                               ? 8
         : format == Format::fp32                             ? 4
         : (format == Format::bf16 || format == Format::fp16) ? 2
                                                              : 1;
}

namespace cpu {
template <class T>
void attention(const AttentionArgs<T>& args);
template <class T>
void attention_backward(const AttentionBackwardArgs<T>& args);
template <class T>
void paged_attention(const PagedAttentionArgs<T>& args);
template <class T>
void cache_write(const CacheWriteArgs<T>& args);
}  // namespace cpu
namespace cuda {
template <class T>
void attention(const AttentionArgs<T>& args);
template <class T>
void attention_backward(const AttentionBackwardArgs<T>& args);
template <class T>
void paged_attention(const PagedAttentionArgs<T>& args);
template <class T>
void cache_write(const CacheWriteArgs<T>& args);
}  // namespace cuda
namespace emulated {
template <class T>
void attention(const AttentionArgs<T>& args);
template <class T>
void attention_backward(const AttentionBackwardArgs<T>& args);
template <class T>
void paged_attention(const PagedAttentionArgs<T>& args);
template <class T>
void cache_write(const CacheWriteArgs<T>& args);
}  // namespace emulated
}  // namespace motley::kernels
