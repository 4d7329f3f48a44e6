// The quantizers once more, element by element from the scalar rules of kernels/formats.h and kernels/quantize_block.h:
// what the vectorized ones must give bit for bit.
#pragma once

#include <cstring>
#include <type_traits>
#include <vector>

#include "kernels/quantize.h"
#include "kernels/quantize_block.h"

namespace reference {
using namespace motley::kernels;

/// Calls body with a format of elements as a template argument.
template <class Body>
auto visit_format(Format format, Body&& body) {
  switch (format) {
    case Format::bf16:
      return body.template operator()<Format::bf16>();
    case Format::fp16:
      return body.template operator()<Format::fp16>();
    case Format::e4m3:
      return body.template operator()<Format::e4m3>();
    case Format::e5m2:
      return body.template operator()<Format::e5m2>();
    case Format::e2m1:
      return body.template operator()<Format::e2m1>();
    default:
      return body.template operator()<Format::fp32>();
  }
}

template <Format F>
void put_code(QuantizedMatrix& m, int64_t row, int64_t col, uint32_t code) {
  if constexpr (F == Format::e2m1) {
    m.codes[static_cast<size_t>(row * ((m.cols + 1) / 2) + col / 2)] |= static_cast<uint8_t>(code << (col % 2 * 4));
  } else {
    constexpr size_t kBytes = F == Format::fp32 ? 4 : F == Format::bf16 || F == Format::fp16 ? 2 : 1;
    std::memcpy(m.codes.data() + static_cast<size_t>(row * m.cols + col) * kBytes, &code, kBytes);
  }
}
/// Codes of a rectangle, all divided by one number.
template <Format F>
void encode(QuantizedMatrix& m, const float* x, int64_t row, int64_t rows, int64_t col, int64_t cols, float divisor) {
  for (int64_t r = row; r < row + rows; ++r)
    for (int64_t c = col; c < col + cols; ++c)
      put_code<F>(m, r, c, motley::kernels::encode<F>(x[r * m.cols + c] / divisor));
}
inline BlockRange range(const QuantizedMatrix& m, const float* x, int64_t row, int64_t rows, int64_t col,
                        int64_t cols) {
  BlockRange all;
  for (int64_t r = row; r < row + rows; ++r) {
    const BlockRange one = block_range(x + r * m.cols + col, cols);
    all = {std::max(all.amax, one.amax), all.has_nan || one.has_nan};
  }
  return all;
}

inline void encode_nv(QuantizedMatrix& m, const float* x, int64_t row, int64_t col, int64_t cols) {
  std::array<float, kNvBlock> padded{};
  std::copy_n(x + row * m.cols + col, cols, padded.begin());
  const NvBlock block = nv_encode(padded.data(), m.scales[0], m.how.four_over_six);
  m.block_codes.push_back(block.scale);
  for (int64_t i = 0; i < cols; ++i)
    put_code<Format::e2m1>(m, row, col + i, motley::kernels::encode<Format::e2m1>(block.elements[i]));
}

template <Format F>
void encode_block(QuantizedMatrix& m, const float* x, int64_t row, int64_t rows, int64_t col, int64_t cols) {
  const BlockRange block = range(m, x, row, rows, col, cols);
  if (m.how.scaling == Scaling::nv16) return encode_nv(m, x, row, col, cols);
  if (m.how.scaling == Scaling::mx32) {
    m.block_codes.push_back(mx_scale(block, F));
    if (!block.has_nan) encode<F>(m, x, row, rows, col, cols, ue8m0_to_float(m.block_codes.back()));
    return;
  }
  float scale = 1.0f;
  if (m.how.scaling == Scaling::tensor)
    scale = m.scales[0];
  else if (m.how.scaling != Scaling::none)
    m.scales.push_back(scale = fp32_scale(block.amax, F));
  encode<F>(m, x, row, rows, col, cols, scale);
}

inline QuantizedMatrix quantize(const std::vector<float>& x, int64_t rows, int64_t cols, const Quantization& how,
                                float shared_amax = 0.0f) {
  QuantizedMatrix m;
  m.how = how;
  m.rows = rows;
  m.cols = cols;
  const int64_t bits = how.format == Format::fp32                                 ? 32
                       : how.format == Format::bf16 || how.format == Format::fp16 ? 16
                       : how.format == Format::e2m1                               ? 4
                                                                                  : 8;
  m.codes.assign(static_cast<size_t>(rows * ((cols * bits + 7) / 8)), 0);
  const float amax = shared_amax > 0.0f ? shared_amax : range(m, x.data(), 0, rows, 0, cols).amax;
  if (how.scaling == Scaling::nv16) m.scales = {nv_tensor_scale(amax)};
  if (how.scaling == Scaling::tensor) m.scales = {fp32_scale(amax, how.format)};
  const int64_t height = how.scaling == Scaling::block128x128 ? 128 : 1;
  const int64_t width = how.scaling == Scaling::mx32                          ? kMxBlock
                        : how.scaling == Scaling::nv16                        ? kNvBlock
                        : height == 128 || how.scaling == Scaling::block1x128 ? kFp8Block
                                                                              : std::max<int64_t>(cols, 1);
  visit_format(how.format, [&]<Format F>() {
    for (int64_t r = 0; r < rows; r += height)
      for (int64_t c = 0; c < cols || (c == 0 && how.scaling == Scaling::channel); c += width)
        encode_block<F>(m, x.data(), r, std::min(height, rows - r), c, std::min(width, cols - c));
  });
  return m;
}

}  // namespace reference
