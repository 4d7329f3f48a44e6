// Conversions, rounding and the sum of squares: what reads every element of a tensor once.
#include "kernels/cpu/instantiate.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/lanes.h"
#include "kernels/elements.h"
#include "kernels/kv_format.h"
#include "kernels/pointwise.h"

namespace motley::kernels::GPU_NAMESPACE {
namespace {

constexpr int kSumThreads = 256;

template <class To, class From>
GPU_KERNEL void convert_kernel(To* y, const From* x, int64_t count) {
  map_elements(
      count, [&](int64_t i) { return converted<To>(x[i]); }, [&](int64_t i, To value) { y[i] = value; });
}

template <Format F, class T>
GPU_KERNEL void round_values_kernel(T* y, const T* x, Compute<T> scale, int64_t count) {
  map_elements(
      count, [&](int64_t i) { return decode_kv<F, T>(encode_kv<F>(x[i], scale), scale); },
      [&](int64_t i, T value) { y[i] = value; });
}

/// sums[block()] over its kSumBlock elements.
template <class T>
GPU_KERNEL void square_sums_kernel(double* sums, const T* x, int64_t count) {
  GPU_SHARED(double, tile, kTile);
  const int64_t begin = block() * kSumBlock, size = count - begin < kSumBlock ? count - begin : kSumBlock;
  const double sum = sum_lanes(
      size,
      [&](int64_t i) {
        const double value = static_cast<double>(load(x[begin + i]));
        return value * value;
      },
      tile);
  if (thread() == 0) sums[block()] = sum;
}
/// One chain over the blocks' sums.
GPU_KERNEL void add_sums_kernel(double* total, const double* sums, int64_t count) {
  GPU_SHARED(double, tile, kTile);
  double sum = 0;
  for (int64_t base = 0; base < count; base += kTile) {
    const int size = static_cast<int>(count - base < kTile ? count - base : kTile);
    barrier();
    for (int i = thread(); i < size; i += threads()) tile[i] = sums[base + i];
    barrier();
    for (int i = 0; thread() == 0 && i < size; ++i) sum += tile[i];
  }
  if (thread() == 0) *total = sum;
}

}  // namespace

void convert(void* y, DType y_dtype, const void* x, DType x_dtype, int64_t count) {
  visit_dtype(y_dtype, [&]<class To>(To) {
    visit_dtype(x_dtype, [&]<class From>(From) {
      launch(element_launch("convert", count), convert_kernel<To, From>, static_cast<To*>(y),
             static_cast<const From*>(x), count);
    });
  });
}

template <class T>
void round_values(T* y, const T* x, Format format, double scale, int64_t count) {
  visit_kv_format(format, [&]<Format F>(std::integral_constant<Format, F>) {
    launch(element_launch("round_values", count), round_values_kernel<F, T>, y, x, static_cast<Compute<T>>(scale),
           count);
  });
}

template <class T>
void sum_of_squares(double* sum, const T* x, int64_t count) {
  const int64_t blocks = pieces(count, kSumBlock);
  const Scratch<double> sums(blocks);
  launch({"square_sums", blocks, kSumThreads}, square_sums_kernel<T>, sums.data(), x, count);
  launch({"add_sums", 1, kSumThreads}, add_sums_kernel, sum, sums.data(), blocks);
}

#define MOTLEY_INSTANTIATE(T)                                           \
  template void round_values<T>(T*, const T*, Format, double, int64_t); \
  template void sum_of_squares<T>(double*, const T*, int64_t);
MOTLEY_FOR_EACH_TYPE(MOTLEY_INSTANTIATE)

}  // namespace motley::kernels::GPU_NAMESPACE
