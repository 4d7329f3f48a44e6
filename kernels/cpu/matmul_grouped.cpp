#include "kernels/matmul_grouped.h"

namespace motley::kernels::cpu {

void matmul_grouped(const GroupedMatmulArgs& args) {
  for (int64_t g = 0; g < args.groups; ++g)
    if (args.offsets[g] < args.offsets[g + 1]) matmul(product_of_group(args, g, args.offsets[g], args.offsets[g + 1]));
}

}  // namespace motley::kernels::cpu
