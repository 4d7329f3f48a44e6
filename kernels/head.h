// The policy head: log-probabilities of selected ids, from hidden states, over the whole vocabulary or over a replayed
// candidate set per row. Works in row chunks; the probabilities of a batch are never held, and logits only as far as
// the caller gives room for them, which saves backward their product.
//
// z = (hidden W^T) / temperature in float (double for f64). Per row, over its support S (all ids, or its candidates):
//   lse = log sum_{v in S} exp z_v,  log p_v = z_v - lse,  H = -sum_{v in S} p_v log p_v.
// Backward with cotangents b_k on selected log p and c on H (design: "The head"):
//   dL/dz_v = a p_v + sum_k b_k [v = id_k] - c p_v (log p_v + H),  a = -sum_k b_k.
#pragma once

#include <cstdint>

#include "kernels/dtype.h"

namespace motley::kernels {

/// One list of ids per row: row r owns ids[offsets[r] .. offsets[r + 1]).
struct IdLists {
  const int64_t* offsets = nullptr;  // [rows + 1]; null: no lists
  const int32_t* ids = nullptr;
};

template <class T>
struct HeadArgs {
  const T* hidden;  // [rows, width]
  const T* weight;  // [vocabulary, width]
  int64_t rows, width, vocabulary;
  double temperature;       // > 0
  IdLists selected;         // ids whose log p is wanted; each in the row's support, no id twice in a row
  IdLists candidates;       // the support of each row, ascending; offsets null: the whole vocabulary
  Compute<T>* log_p;        // [selected]
  Compute<T>* log_outside;  // [rows] log of the mass of the support outside the selected ids, a log-sum-exp of its own;
                            // -inf when nothing is outside; may be null
  Compute<T>* entropy;      // [rows]; may be null
  Compute<T>* lse;          // [rows]; may be null
  // Room for z of the first rows: the forward pass of the CPU's body leaves them there, and its backward pass reads
  // them. None: they are computed again.
  Compute<T>* kept_logits = nullptr;  // [kept_rows, vocabulary]
  int64_t kept_rows = 0;
  // On a device: products by its fastest kernel instead of those with the CPU's bits (kernels/product_body.h), and
  // dL/dz rounded to T before it is multiplied.
  bool vendor = false;
};
template <class T>
struct HeadBackwardArgs {
  HeadArgs<T> forward;          // the inputs; its outputs are unused, but lse and entropy (always set) are read
  const Compute<T>* d_log_p;    // [selected] cotangents b
  const Compute<T>* d_entropy;  // [rows] cotangents c; may be null
  T* d_hidden;                  // [rows, width], set
  Compute<T>* d_weight;         // [vocabulary, width], accumulated with rows ascending
  // The CPU's body alone: d_weight is set, as if it had been zero, and need not be. Not with no rows.
  bool sets_weight = false;
};

namespace cpu {
template <class T>
void head(const HeadArgs<T>& args);
template <class T>
void head_backward(const HeadBackwardArgs<T>& args);
/// lse [rows] = the log of the sum of exp over each row of values [rows, cols]: the maximum, then 16 virtual lanes by
/// index. -inf for cols = 0, and for a row of -inf; float and double.
template <class C>
void log_sum_exp(C* lse, const C* values, int64_t rows, int64_t cols);
}  // namespace cpu
namespace cuda {
template <class T>
void head(const HeadArgs<T>& args);
template <class T>
void head_backward(const HeadBackwardArgs<T>& args);
template <class C>
void log_sum_exp(C* lse, const C* values, int64_t rows, int64_t cols);
}  // namespace cuda
namespace emulated {
template <class T>
void head(const HeadArgs<T>& args);
template <class T>
void head_backward(const HeadBackwardArgs<T>& args);
template <class C>
void log_sum_exp(C* lse, const C* values, int64_t rows, int64_t cols);
}  // namespace emulated
}  // namespace motley::kernels
