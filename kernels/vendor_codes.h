// Quantized operands as cuBLASLt reads them: codes row-major, and block scales where it looks for them.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/quantize.h"

namespace motley::kernels {

/// How cuBLASLt computes a product.
enum class VendorProduct : uint8_t {
  none,
  plain,       // fp32, bf16 or fp16 of both operands
  fp8,         // codes whose fp32 scales are applied to the finished sum
  fp8_blocks,  // fp32 scales over 128 inputs of activations and 128 x 128 of weights
  mxfp8,       // ue8m0 scales over 32 inputs
  nvfp4,       // e4m3 scales over 16 inputs
};

// Of scales over 16 or 32 inputs: tiles of 128 rows by 4 blocks, 512 bytes each, row-major; rows and blocks are filled
// up with zeros. Source: cuBLAS documentation, "1D Block Scaling Factors Layout".
constexpr int64_t tiled_scale_bytes(int64_t rows, int64_t blocks) {
  return (rows + 127) / 128 * ((blocks + 3) / 4) * 512;
}
constexpr int64_t tiled_scale_place(int64_t row, int64_t block, int64_t blocks) {
  const int64_t tile = row / 128 * ((blocks + 3) / 4) + block / 4;
  return tile * 512 + row % 32 * 16 + row % 128 / 32 * 4 + block % 4;
}
// Of fp32 scales over 128 inputs, in elements. Source: cuBLAS documentation, "Scaling factors layouts".
/// Of activations: all rows of a block side by side, filled up to a multiple of four.
constexpr int64_t row_scale_place(int64_t row, int64_t block, int64_t rows) {
  return block * ((rows + 3) / 4 * 4) + row;
}
/// Of weights' blocks of 128 rows: all blocks of inputs side by side, filled up to a multiple of four.
constexpr int64_t square_scale_place(int64_t row_block, int64_t block, int64_t blocks) {
  return row_block * ((blocks + 3) / 4 * 4) + block;
}

/// Memory of the device, aligned to 16 bytes.
struct VendorCodes {
  const void* codes = nullptr;   // [rows, cols], e4m3, e5m2 or e2m1, the last packed as QuantizedMatrix has it
  const void* scales = nullptr;  // null for fp8
  int64_t rows = 0, cols = 0;    // fp8_blocks: activations have room for a multiple of four rows, of which the last
                                 // ones count for nothing
  Format format = Format::e4m3;
};
/// The bytes of both, on the host.
struct VendorBytes {
  std::vector<uint8_t> codes, scales;
};
/// fp32 scales of a row, a column or a tensor stay outside: they are factors of the finish. Throws
/// std::invalid_argument for scales that the product does not have.
VendorBytes vendor_bytes(const QuantizedMatrix& matrix, VendorProduct product);

}  // namespace motley::kernels
