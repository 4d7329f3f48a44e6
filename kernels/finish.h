// The finish of a product whose sums another kernel made.
#pragma once

#include "kernels/matmul.h"

namespace motley::kernels {

// C = the finish of sums [M, N], as MatmulArgs describes it for C's own product: alpha, factors, rounding, gate,
// residual. Operands and `accumulate` are not looked at. The bits are those of a `matmul` with these sums.
namespace cpu {
void finish_sums(const MatmulArgs& args, const float* sums);
}  // namespace cpu
namespace cuda {
void finish_sums(const MatmulArgs& args, const float* sums);
}  // namespace cuda
namespace emulated {
void finish_sums(const MatmulArgs& args, const float* sums);
}  // namespace emulated
}  // namespace motley::kernels
