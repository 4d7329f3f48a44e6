// The product in double, for gradient checks and the audit.
#pragma once

#include "kernels/matmul.h"

namespace motley::kernels::cpu {

/// All operands f64, neither M, N nor K is 0, no block scales.
void matmul_f64(const MatmulArgs& args);

}  // namespace motley::kernels::cpu
