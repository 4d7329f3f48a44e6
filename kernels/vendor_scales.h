// Block scales of activations where cuBLASLt looks for them.
#pragma once

#include <cstdint>

namespace motley::kernels {

// placed[row_scale_place(r, b, rows)] = scales[r, b] (kernels/vendor_codes.h), and 1 between them.
namespace cpu {
void place_row_scales(float* placed, const float* scales, int64_t rows, int64_t blocks);
}  // namespace cpu
namespace cuda {
void place_row_scales(float* placed, const float* scales, int64_t rows, int64_t blocks);
}  // namespace cuda
namespace emulated {
void place_row_scales(float* placed, const float* scales, int64_t rows, int64_t blocks);
}  // namespace emulated
}  // namespace motley::kernels
