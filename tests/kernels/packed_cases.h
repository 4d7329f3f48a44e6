// Quantized matrices of every form that a packed matrix may have, with chosen or random codes.
#pragma once

#include <bit>
#include <cmath>

#include "kernels/quantize.h"
#include "tests/kernels/values.h"

namespace motley::kernels {

inline const Quantization kPackedForms[] = {{Format::fp32, Scaling::none}, {Format::bf16, Scaling::none},
                                            {Format::fp16, Scaling::none}, {Format::e4m3, Scaling::none},
                                            {Format::e4m3, Scaling::mx32}, {Format::e5m2, Scaling::none},
                                            {Format::e5m2, Scaling::mx32}, {Format::e2m1, Scaling::none},
                                            {Format::e2m1, Scaling::mx32}, {Format::e2m1, Scaling::nv16}};

/// Random values quantized; with `rare`, also codes that no encoder chooses for them: any byte, NaN and infinity
/// included, and block scales from end to end.
inline QuantizedMatrix random_matrix(const Quantization& how, int64_t rows, int64_t cols, uint64_t seed, bool rare) {
  QuantizedMatrix m = quantize(values<float>(rows * cols, seed), rows, cols, how);
  Values draw(seed + 1);
  if (!rare) return m;
  for (uint8_t& code : m.codes) code = static_cast<uint8_t>(draw.below(256));
  for (uint8_t& code : m.block_codes) code = static_cast<uint8_t>(draw.below(256));
  return m;
}

inline std::vector<float> decoded(const QuantizedMatrix& m) {
  std::vector<float> out(static_cast<size_t>(m.rows * m.cols));
  decode_codes(m, out);
  return out;
}

/// The same bits, but for the payload of NaN, which the order of an addition's operands decides.
inline bool same_value(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) || std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

}  // namespace motley::kernels
