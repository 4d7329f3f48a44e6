#include "kernels/norm.h"

#include "kernels/cpu/elementwise_inner.h"
#include "kernels/cpu/instantiate.h"
#include "kernels/parallel.h"

namespace motley::kernels::cpu {
namespace {
int64_t row_grain(int64_t cols) { return 1 + kPieceElements / (cols + 1); }
}  // namespace

template <class T>
void rms_norm(const RmsNormArgs<T>& args) {
  parallel_for(args.rows, row_grain(args.cols),
               [&](int64_t begin, int64_t end) { loops_of<T>().norm(args, begin, end); });
}

template <class T>
void rms_norm_backward(const RmsNormBackwardArgs<T>& args) {
  parallel_for(args.rows, row_grain(args.cols),
               [&](int64_t begin, int64_t end) { loops_of<T>().norm_dx(args, begin, end); });
  parallel_for(args.cols, 16 + kPieceElements / (args.rows + 1),
               [&](int64_t begin, int64_t end) { loops_of<T>().norm_dgain(args, begin, end); });
}

#define MOTLEY_INSTANTIATE(T)                       \
  template void rms_norm<T>(const RmsNormArgs<T>&); \
  template void rms_norm_backward<T>(const RmsNormBackwardArgs<T>&);
MOTLEY_FOR_EACH_TYPE(MOTLEY_INSTANTIATE)

}  // namespace motley::kernels::cpu
