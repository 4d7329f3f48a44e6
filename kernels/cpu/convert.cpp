#include "kernels/cpu/elements.h"
#include "kernels/cpu/elementwise_inner.h"
#include "kernels/cpu/instantiate.h"
#include "kernels/cpu/kv_format.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/scratch.h"
#include "kernels/parallel.h"
#include "kernels/pointwise.h"

namespace motley::kernels::cpu {
namespace {

/// The float next to x whose last bit tells that x lies beside it (round to odd): rounding that once more, to fewer
/// bits, gives what rounding x directly would.
float round_to_odd(double x) {
  const float near = static_cast<float>(x);
  const uint32_t bits = std::bit_cast<uint32_t>(near);
  if (static_cast<double>(near) == x || x != x || (bits & 1u) != 0) return near;
  const bool too_large = std::fabs(static_cast<double>(near)) > std::fabs(x);
  return std::bit_cast<float>(too_large ? bits - 1 : bits + 1);
}

template <class To, class From>
inline To converted(From x) {
  if constexpr (std::is_same_v<To, From>)
    return x;
  else if constexpr (!std::is_same_v<From, double>)
    return store<To>(static_cast<Compute<To>>(load(x)));
  else if constexpr (std::is_same_v<To, float>)
    return static_cast<float>(x);
  else
    return store<To>(round_to_odd(x));
}

constexpr int64_t kSumBlock = int64_t{1} << 16;

}  // namespace

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

// Blocks of 2^16 elements are summed alone and added in order, so that threads may share a long tensor.
template <class T>
double sum_of_squares(const T* x, int64_t count) {
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
  double total = 0;
  for (int64_t b = 0; b < blocks; ++b) total += sums[b];
  return total;
}

#define MOTLEY_INSTANTIATE(T)                                           \
  template void round_values<T>(T*, const T*, Format, double, int64_t); \
  template double sum_of_squares<T>(const T*, int64_t);
MOTLEY_FOR_EACH_TYPE(MOTLEY_INSTANTIATE)

}  // namespace motley::kernels::cpu
