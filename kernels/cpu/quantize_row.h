// The quantizers' vector bodies: one row at a time, one body per instruction set, chosen at run time. The bits are
// those of the scalar rules in kernels/quantize_block.h on every one of them. Used by kernels/quantize*.cpp, which
// split rows over threads.
#pragma once

#include "kernels/profile.h"
#include "kernels/quantize_block.h"

namespace motley::kernels::cpu {

/// One row of a QuantizedMatrix.
struct EncodeRow {
  Quantization how;
  const float* x = nullptr;  // [cols]
  int64_t cols = 0;
  uint8_t* codes = nullptr;        // bytes of a whole row
  uint8_t* block_codes = nullptr;  // mx32, nv16
  float* scales = nullptr;  // tensor, nv16 [1] and block128x128 [ceil(cols/128)]: given; channel [1] and block1x128
                            // [ceil(cols/128)]: written; not used by none and mx32
};
void encode_row(const EncodeRow& row);

/// quantize_activation (kernels/quantize.h) for a row of its own: in place, returns the factor on the finished sum.
float round_row(float* x, int64_t cols, const Quantization& how, float* block_scales);

/// block_range over rows that lie `stride` apart.
BlockRange range_of(const float* x, int64_t stride, int64_t rows, int64_t cols);

}  // namespace motley::kernels::cpu
