#include "kernels/cpu/matmul_f64.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/matmul_finish.h"
#include "kernels/cpu/scratch.h"
#include "kernels/parallel.h"

namespace motley::kernels::cpu {
namespace {

constexpr int64_t kLanes = 8;  // columns of C at a time

/// Chains of one row of A against kLanes rows of B, packed as [k][kLanes].
void multiply_row(const MatmulArgs& args, const double* a, const double* panel, double* sums) {
  const int64_t depth = args.a.cols, tile = args.k_tile == 0 ? depth : args.k_tile;
  double total[kLanes];
  std::copy_n(sums, kLanes, total);
  for (int64_t begin = 0; begin < depth; begin += tile) {
    double chain[kLanes] = {};
    if (args.k_tile == 0) std::copy_n(total, kLanes, chain);
    for (int64_t k = begin; k < std::min(depth, begin + tile); ++k) {
      const double value = a[k * args.a.col_stride];
      for (int64_t l = 0; l < kLanes; ++l) chain[l] = std::fma(value, panel[k * kLanes + l], chain[l]);
    }
    for (int64_t l = 0; l < kLanes; ++l) total[l] = args.k_tile == 0 ? chain[l] : total[l] + chain[l];
  }
  std::copy_n(total, kLanes, sums);
}

}  // namespace

void matmul_f64(const MatmulArgs& args) {
  if (args.a.dtype != DType::f64 || args.b.dtype != DType::f64 || args.packed != nullptr || args.a_scales != nullptr)
    throw std::logic_error("matmul: a float64 product takes plain float64 operands");
  if (args.alpha != 1.0f || !finish_is_plain(args)) throw std::logic_error("matmul: a float64 product has no finish");
  const int64_t m = args.c.rows, n = args.b.rows, depth = args.a.cols;
  parallel_for((n + kLanes - 1) / kLanes, 1 + (1 << 16) / (m * depth), [&](int64_t begin, int64_t end) {
    double* panel = scratch<struct DoublePanel, double>(depth * kLanes);
    for (int64_t p = begin; p < end; ++p) {
      const int64_t first = p * kLanes, count = std::min(kLanes, n - first);
      std::fill_n(panel, depth * kLanes, 0.0);
      const double* b = static_cast<const double*>(args.b.data) + first * args.b.row_stride;
      for (int64_t l = 0; l < count; ++l)
        for (int64_t k = 0; k < depth; ++k) panel[k * kLanes + l] = b[l * args.b.row_stride + k * args.b.col_stride];
      for (int64_t r = 0; r < m; ++r) {
        double* c = static_cast<double*>(args.c.data) + r * args.c.row_stride + first * args.c.col_stride;
        double sums[kLanes] = {};
        if (args.accumulate)
          for (int64_t l = 0; l < count; ++l) sums[l] = c[l * args.c.col_stride];
        multiply_row(args, static_cast<const double*>(args.a.data) + r * args.a.row_stride, panel, sums);
        for (int64_t l = 0; l < count; ++l) c[l * args.c.col_stride] = sums[l];
      }
    }
  });
}

}  // namespace motley::kernels::cpu
