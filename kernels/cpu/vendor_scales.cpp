#include "kernels/vendor_scales.h"

#include "kernels/vendor_codes.h"

namespace motley::kernels::cpu {

void place_row_scales(float* placed, const float* scales, int64_t rows, int64_t blocks) {
  const int64_t wide = row_scale_place(0, 1, rows);
  for (int64_t b = 0; b < blocks; ++b)
    for (int64_t r = 0; r < wide; ++r) placed[row_scale_place(r, b, rows)] = r < rows ? scales[r * blocks + b] : 1.0f;
}

}  // namespace motley::kernels::cpu
