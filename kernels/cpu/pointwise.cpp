#include "kernels/pointwise.h"

#include <algorithm>

#include "kernels/cpu/elements.h"
#include "kernels/cpu/elementwise_inner.h"
#include "kernels/cpu/instantiate.h"
#include "kernels/parallel.h"

namespace motley::kernels::cpu {

template <class T>
void silu_mul(const SiluMulArgs<T>& args) {
  parallel_for(args.count, kPieceElements,
               [&](int64_t begin, int64_t end) { loops_of<T>().silu_mul(args, begin, end); });
}

template <class T>
void silu_mul_backward(const SiluMulBackwardArgs<T>& args) {
  parallel_for(args.count, kPieceElements,
               [&](int64_t begin, int64_t end) { loops_of<T>().silu_mul_backward(args, begin, end); });
}

template <class T>
void rope(const RopeArgs<T>& args) {
  parallel_for(args.rows, 1 + kPieceElements / (args.heads * args.head_dim + 1),
               [&](int64_t begin, int64_t end) { loops_of<T>().rope(args, begin, end); });
}

template <class T>
void embedding(const EmbeddingArgs<T>& args) {
  parallel_for(args.rows, 1 + kPieceElements / (args.cols + 1), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      std::copy_n(args.table + args.ids[r] * args.cols, args.cols, args.y + r * args.cols);
  });
}

template <class T>
void embedding_backward(const EmbeddingBackwardArgs<T>& args) {
  parallel_for(args.cols, 16 + kPieceElements / (args.rows + 1), [&](int64_t begin, int64_t end) {
    for (int64_t r = 0; r < args.rows; ++r) {
      Compute<T>* out = args.dtable + args.ids[r] * args.cols;
      const T* dy = args.dy + r * args.cols;
      for (int64_t c = begin; c < end; ++c) out[c] += load(dy[c]);
    }
  });
}

template <class T>
void adamw(const AdamWArgs<T>& args) {
  const AdamWNumbers<T> n = adamw_numbers(args);
  parallel_for(args.count, kPieceElements, [&](int64_t begin, int64_t end) { adamw_range(args, n, begin, end); });
}
template void adamw<float>(const AdamWArgs<float>&);
template void adamw<double>(const AdamWArgs<double>&);

template <class T>
void add(T* y, const T* a, const T* b, int64_t count) {
  parallel_for(count, kPieceElements,
               [&](int64_t begin, int64_t end) { loops_of<T>().add(y + begin, a + begin, b + begin, end - begin); });
}

#define MOTLEY_INSTANTIATE(T)                                           \
  template void silu_mul<T>(const SiluMulArgs<T>&);                     \
  template void silu_mul_backward<T>(const SiluMulBackwardArgs<T>&);    \
  template void rope<T>(const RopeArgs<T>&);                            \
  template void embedding<T>(const EmbeddingArgs<T>&);                  \
  template void embedding_backward<T>(const EmbeddingBackwardArgs<T>&); \
  template void add<T>(T*, const T*, const T*, int64_t);
MOTLEY_FOR_EACH_TYPE(MOTLEY_INSTANTIATE)

}  // namespace motley::kernels::cpu
