// Products of few rows with a packed matrix: the weights are read once, in their stored form, and decoded in registers.
#pragma once

#include "kernels/matmul.h"

namespace motley::kernels::cpu {

/// Up to this many rows it beats decoding panels for the blocked product.
constexpr int64_t kFewRows = 16;

/// cpu::matmul for args.packed and any number of rows; neither M, N nor K is 0.
void few_rows_product(const MatmulArgs& args);

}  // namespace motley::kernels::cpu
