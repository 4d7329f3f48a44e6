// Quantized matrices: the codes and scales that a serving engine would hold. Always made from the fp32 master weights.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/profile.h"

namespace motley::kernels {

/// A row-major matrix [rows, cols] in a quantized form. Values: code * block scale * scale.
/// e2m1 codes are packed two to a byte, the even column in the low half, every row from its own byte on; other codes
/// take one, two or four bytes (little endian).
struct QuantizedMatrix {
  Quantization how;
  int64_t rows = 0, cols = 0;
  std::vector<uint8_t> codes;
  std::vector<uint8_t> block_codes;  // mx32: ue8m0 [rows, ceil(cols/32)]; nv16: e4m3 [rows, ceil(cols/16)]
  std::vector<float> scales;  // tensor, nv16: [1]; channel: [rows]; block128x128: [ceil(rows/128), ceil(cols/128)];
                              // block1x128: [rows, ceil(cols/128)]; none, mx32: empty
};

/// Bytes of a row of codes; no ue8m0.
int64_t code_bytes(Format format, int64_t cols);
/// Elements of the three arrays of a quantized matrix.
struct QuantizedSizes {
  size_t codes = 0, block_codes = 0, scales = 0;
  bool operator==(const QuantizedSizes&) const = default;
};
QuantizedSizes quantized_sizes(const Quantization& how, int64_t rows, int64_t cols);
/// Throws std::invalid_argument unless the arrays have these sizes and the format and the scaling belong together.
void check_sizes(const QuantizedMatrix& m);

/// `shared_amax` > 0: the largest magnitude of all matrices that share one tensor scale (fused q/k/v, gate/up).
/// An all-zero block gives zeros. NaN stays NaN: its element alone where the element format has NaN and scales are
/// fp32, its whole block with mx32 and nv16 (in a plain e2m1 cast it gives 6). Rules: docs/formats.md. Throws
/// std::invalid_argument for a format that the scaling does not have.
QuantizedMatrix quantize(std::span<const float> values, int64_t rows, int64_t cols, const Quantization& how,
                         float shared_amax = 0.0f);
/// The full values, as float: code * block scale * scale, each product rounded once in that order.
void dequantize(const QuantizedMatrix& m, std::span<float> out);
/// The values without the fp32 scales (code, times its block scale for mx32 and nv16): exact in float.
void decode_codes(const QuantizedMatrix& m, std::span<float> out);
/// An infinity counts as the largest float, NaN not at all.
float largest_magnitude(std::span<const float> values);

/// One token's activations, in place: x[cols] becomes what decode_codes gives for the row quantized alone. Sets
/// block_scales [ceil(cols/128)] for block1x128. Returns the factor on the finished sum: the row's own fp32 scale
/// (tensor, channel, and nv16's second level), else 1.
float quantize_activation(float* x, int64_t cols, const Quantization& how, float* block_scales);
/// Throw std::invalid_argument for a format that the scaling does not have; for activations also unless every scale
/// belongs to one token (block128x128 would mix them).
void check_quantization(const Quantization& how);
void check_activation(const Quantization& how);

}  // namespace motley::kernels
