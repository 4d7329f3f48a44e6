// Elementwise kernels, rotary embedding, embedding lookup, and the optimizer's update. All depend on their own
// element or row alone.
#pragma once

#include "kernels/dtype.h"

namespace motley::kernels {

template <class T>
struct SiluMulArgs {  // y = silu(gate) * up
  T* y;
  const T* gate;
  const T* up;
  int64_t count;
};
template <class T>
struct SiluMulBackwardArgs {
  T* dgate;  // may be dy
  T* dup;
  const T* dy;
  const T* gate;
  const T* up;
  int64_t count;
  T* y = nullptr;  // silu(gate) * up once more, which costs little here; null: not wanted
};
/// Rotates pairs (i, i + head_dim / 2) of every head, as in Hugging Face's Llama and Qwen3.
template <class T>
struct RopeArgs {
  T* y;                       // [rows, heads, head_dim]; may be x
  const T* x;                 // [rows, heads, head_dim]
  const int32_t* positions;   // [rows], each in [0, table_rows)
  const Compute<T>* cosines;  // [table_rows, head_dim / 2]
  const Compute<T>* sines;    // [table_rows, head_dim / 2]
  int64_t rows, heads, head_dim;
  bool inverse;  // the backward pass: rotates by the negative angle
};
template <class T>
struct EmbeddingArgs {
  T* y;                // [rows, cols]
  const T* table;      // [vocabulary, cols]
  const int32_t* ids;  // [rows], each in [0, vocabulary)
  int64_t rows, cols;
};
template <class T>
struct EmbeddingBackwardArgs {
  Compute<T>* dtable;  // [vocabulary, cols], accumulated with rows ascending
  const T* dy;         // [rows, cols]
  const int32_t* ids;  // [rows]
  int64_t rows, cols;
};
/// AdamW with decoupled weight decay (Loshchilov and Hutter 2019). Everything is float (or double).
template <class T>
struct AdamWArgs {
  T* weight;
  T* first;   // first moment
  T* second;  // second moment
  const T* gradient;
  int64_t count;
  double gradient_scale;  // multiplied into the gradient first: clipping and loss scale
  double lr, beta1, beta2, eps, weight_decay;
  int64_t step;  // 1 for the first update
};

inline constexpr int64_t kSumBlock = int64_t{1} << 16;

namespace cpu {
template <class T>
void silu_mul(const SiluMulArgs<T>& args);
template <class T>
void silu_mul_backward(const SiluMulBackwardArgs<T>& args);
template <class T>
void rope(const RopeArgs<T>& args);
template <class T>
void embedding(const EmbeddingArgs<T>& args);
template <class T>
void embedding_backward(const EmbeddingBackwardArgs<T>& args);
template <class T>
void adamw(const AdamWArgs<T>& args);  // float, double
template <class T>
void add(T* y, const T* a, const T* b, int64_t count);
/// y = x in another type, rounded once. Every pair of types.
void convert(void* y, DType y_dtype, const void* x, DType x_dtype, int64_t count);
/// y = x rounded to the nearest value of `format` (times scale), kept in x's type. e4m3 and e5m2 saturate.
template <class T>
void round_values(T* y, const T* x, Format format, double scale, int64_t count);
/// *sum (on the device, as x) = the sum of squares in double; the gradient norm is its square root. Blocks of kSumBlock
/// elements are summed alone, in 16 virtual lanes, and added in order, so that threads may share a long tensor.
template <class T>
void sum_of_squares(double* sum, const T* x, int64_t count);
}  // namespace cpu
namespace cuda {
template <class T>
void silu_mul(const SiluMulArgs<T>& args);
template <class T>
void silu_mul_backward(const SiluMulBackwardArgs<T>& args);
template <class T>
void rope(const RopeArgs<T>& args);
template <class T>
void embedding(const EmbeddingArgs<T>& args);
template <class T>
void embedding_backward(const EmbeddingBackwardArgs<T>& args);
template <class T>
void adamw(const AdamWArgs<T>& args);  // float, double
template <class T>
void add(T* y, const T* a, const T* b, int64_t count);
void convert(void* y, DType y_dtype, const void* x, DType x_dtype, int64_t count);
template <class T>
void round_values(T* y, const T* x, Format format, double scale, int64_t count);
template <class T>
void sum_of_squares(double* sum, const T* x, int64_t count);
}  // namespace cuda
namespace emulated {
template <class T>
void silu_mul(const SiluMulArgs<T>& args);
template <class T>
void silu_mul_backward(const SiluMulBackwardArgs<T>& args);
template <class T>
void rope(const RopeArgs<T>& args);
template <class T>
void embedding(const EmbeddingArgs<T>& args);
template <class T>
void embedding_backward(const EmbeddingBackwardArgs<T>& args);
template <class T>
void adamw(const AdamWArgs<T>& args);  // float, double
template <class T>
void add(T* y, const T* a, const T* b, int64_t count);
void convert(void* y, DType y_dtype, const void* x, DType x_dtype, int64_t count);
template <class T>
void round_values(T* y, const T* x, Format format, double scale, int64_t count);
template <class T>
void sum_of_squares(double* sum, const T* x, int64_t count);
}  // namespace emulated
}  // namespace motley::kernels
