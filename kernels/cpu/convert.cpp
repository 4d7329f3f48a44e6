#include "kernels/cpu/elements.h"
#include "kernels/cpu/elementwise_inner.h"
#include "kernels/cpu/instantiate.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/scratch.h"
#include "kernels/kv_format.h"
#include "kernels/parallel.h"
#include "kernels/pointwise.h"

namespace motley::kernels::cpu {

void convert(void* y, DType y_dtype, const void* x, DType x_dtype, int64_t count) {
  visit_dtype(y_dtype, [&]<class To>(To) {
    visit_dtype(x_dtype, [&]<class From>(From) {
      To* out = static_cast<To*>(y);
      const From* in = static_cast<const From*>(x);
      parallel_for(count, kPieceElements, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) out[i] = converted<To>(in[i]);
      });
    });
  });
}

template <class T>
void round_values(T* y, const T* x, Format format, double scale, int64_t count) {
  visit_kv_format(format, [&]<Format F>(std::integral_constant<Format, F>) {
    parallel_for(count, kPieceElements, [&](int64_t begin, int64_t end) {
      const Compute<T> factor = static_cast<Compute<T>>(scale);
      for (int64_t i = begin; i < end; ++i) y[i] = decode_kv<F, T>(encode_kv<F>(x[i], factor), factor);
    });
  });
}

template <class T>
void sum_of_squares(double* sum, const T* x, int64_t count) {
  const int64_t blocks = (count + kSumBlock - 1) / kSumBlock;
  double* sums = scratch<struct BlockSums, double>(blocks);
  parallel_for(blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const T* block = x + b * kSumBlock;
      const int64_t size = std::min(kSumBlock, count - b * kSumBlock);
      if constexpr (std::is_same_v<T, float>) {
        sums[b] = square_sum(block, size);
      } else {
        sums[b] = sum_lanes<double>(size, [&](int64_t i) {
          const double value = static_cast<double>(load(block[i]));
          return value * value;
        });
      }
    }
  });
  *sum = 0;
  for (int64_t b = 0; b < blocks; ++b) *sum += sums[b];
}

#define MOTLEY_INSTANTIATE(T)                                           \
  template void round_values<T>(T*, const T*, Format, double, int64_t); \
  template void sum_of_squares<T>(double*, const T*, int64_t);
MOTLEY_FOR_EACH_TYPE(MOTLEY_INSTANTIATE)

}  // namespace motley::kernels::cpu
