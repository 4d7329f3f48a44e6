#include "kernels/finish.h"

#include <algorithm>
#include <vector>

#include "kernels/cpu/matmul_finish.h"

namespace motley::kernels::cpu {

void finish_sums(const MatmulArgs& args, const float* sums) {
  const int64_t cols = args.c.cols;
  std::vector<float> row(static_cast<size_t>(cols));
  for (int64_t r = 0; r < args.c.rows; ++r) {
    std::copy_n(sums + r * cols, cols, row.data());
    finish_row(args, r, 0, cols, row.data());
  }
}

}  // namespace motley::kernels::cpu
