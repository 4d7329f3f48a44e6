#include "kernels/cuda/gpu.h"
#include "kernels/vendor_scales.h"

namespace motley::kernels::GPU_NAMESPACE {
namespace {

constexpr int kThreads = 128;

/// wide: rows filled up to a multiple of four, as row_scale_place has it.
GPU_KERNEL void place_row_scales_kernel(float* placed, const float* scales, int64_t rows, int64_t wide,
                                        int64_t blocks) {
  const int64_t i = block() * threads() + thread(), r = i % wide, b = i / wide;
  if (b < blocks) placed[i] = r < rows ? scales[r * blocks + b] : 1.0f;
}

}  // namespace

void place_row_scales(float* placed, const float* scales, int64_t rows, int64_t blocks) {
  const int64_t wide = pieces(rows, 4) * 4;
  launch({"place_row_scales", pieces(wide * blocks, kThreads), kThreads}, place_row_scales_kernel, placed, scales, rows,
         wide, blocks);
}

}  // namespace motley::kernels::GPU_NAMESPACE
