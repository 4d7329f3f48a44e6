#include "kernels/cuda/product.h"
#include "kernels/finish.h"

namespace motley::kernels::GPU_NAMESPACE {
namespace {

constexpr int kThreads = 256;

GPU_KERNEL void finish_kernel(Product p, const float* sums) {
  const int64_t cols = p.args.c.cols, count = p.args.c.rows * cols;
  for (int64_t i = block() * threads() + thread(); i < count; i += blocks() * threads())
    finish(p, i / cols, i % cols, sums[i]);
}

}  // namespace

void finish_sums(const MatmulArgs& args, const float* sums) {
  constexpr int64_t kMostBlocks = 4096;
  const int64_t blocks = pieces(args.c.rows * args.c.cols, kThreads);
  launch({"finish", blocks < kMostBlocks ? blocks : kMostBlocks, kThreads}, finish_kernel, Product{args}, sums);
}

}  // namespace motley::kernels::GPU_NAMESPACE
