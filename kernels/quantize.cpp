#include "kernels/quantize.h"

#include <cstring>
#include <stdexcept>
#include <string>

#include "kernels/parallel.h"
#include "kernels/quantize_block.h"

namespace motley::kernels {
namespace {

constexpr int64_t blocks_of(int64_t count, int64_t block) { return (count + block - 1) / block; }

template <Format F>
constexpr int64_t row_bytes(int64_t cols) {
  if constexpr (F == Format::e2m1)
    return (cols + 1) / 2;
  else
    return cols * (F == Format::fp32 ? 4 : F == Format::bf16 || F == Format::fp16 ? 2 : 1);
}
int64_t row_bytes(Format format, int64_t cols) {
  if (format == Format::e2m1) return row_bytes<Format::e2m1>(cols);
  return cols * (format == Format::fp32 ? 4 : format == Format::bf16 || format == Format::fp16 ? 2 : 1);
}

template <Format F>
using CodeType = std::conditional_t<F == Format::fp32, uint32_t,
                                    std::conditional_t<F == Format::bf16 || F == Format::fp16, uint16_t, uint8_t>>;

/// Codes of x / divisor from column `col` (even) of a row on.
template <Format F>
void encode_run(uint8_t* row, int64_t col, const float* x, int64_t count, float divisor) {
  if constexpr (F == Format::e2m1) {
    uint8_t* out = row + col / 2;
    for (int64_t i = 0; i < count / 2; ++i) {
      out[i] = static_cast<uint8_t>(encode<F>(x[2 * i] / divisor) | encode<F>(x[2 * i + 1] / divisor) << 4);
    }
    if (count % 2 != 0) out[count / 2] = static_cast<uint8_t>(encode<F>(x[count - 1] / divisor));
  } else {
    for (int64_t i = 0; i < count; ++i) {
      const auto code = static_cast<CodeType<F>>(encode<F>(x[i] / divisor));
      std::memcpy(row + (col + i) * static_cast<int64_t>(sizeof(code)), &code, sizeof(code));
    }
  }
}
template <Format F>
void decode_row(float* out, const uint8_t* row, int64_t cols) {
  if constexpr (F == Format::e2m1) {
    for (int64_t i = 0; i < cols / 2; ++i) {
      out[2 * i] = decode<F>(row[i] & 0xfu);
      out[2 * i + 1] = decode<F>(row[i] >> 4);
    }
    if (cols % 2 != 0) out[cols - 1] = decode<F>(row[cols / 2] & 0xfu);
  } else {
    for (int64_t i = 0; i < cols; ++i) {
      CodeType<F> code;
      std::memcpy(&code, row + i * static_cast<int64_t>(sizeof(code)), sizeof(code));
      out[i] = decode<F>(code);
    }
  }
}

/// Calls body with the format as a template argument.
template <class Body>
void visit_format(Format format, Body&& body) {
  switch (format) {
    case Format::fp32:
      return body.template operator()<Format::fp32>();
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
      check_quantization({format});
  }
}

/// The largest magnitudes of a strip of up to 128 rows, one per 128 columns.
void strip_scales(float* scales, const float* x, int64_t rows, int64_t cols, Format format) {
  for (int64_t c = 0; c < cols; c += kFp8Block) {
    const int64_t width = std::min(kFp8Block, cols - c);
    float amax = 0.0f;
    for (int64_t r = 0; r < rows; ++r) amax = std::max(amax, block_range(x + r * cols + c, width).amax);
    scales[c / kFp8Block] = fp32_scale(amax, format);
  }
}

template <Format F>
void encode_mx_row(uint8_t* codes, uint8_t* scales, const float* x, int64_t cols) {
  for (int64_t c = 0; c < cols; c += kMxBlock) {
    const int64_t width = std::min(kMxBlock, cols - c);
    const BlockRange range = block_range(x + c, width);
    const uint8_t scale = mx_scale(range, F);
    scales[c / kMxBlock] = scale;
    if (!range.has_nan) encode_run<F>(codes, c, x + c, width, ue8m0_to_float(scale));
  }
}
void encode_nv_row(uint8_t* codes, uint8_t* scales, const float* x, int64_t cols, float tensor_scale,
                   bool four_over_six) {
  for (int64_t c = 0; c < cols; c += kNvBlock) {
    const int64_t width = std::min(kNvBlock, cols - c);
    std::array<float, kNvBlock> padded{};
    if (width < kNvBlock) std::copy_n(x + c, width, padded.begin());
    const NvBlock block = nv_encode(width < kNvBlock ? padded.data() : x + c, tensor_scale, four_over_six);
    scales[c / kNvBlock] = block.scale;
    std::array<uint32_t, kNvBlock> halves;
    for (int64_t i = 0; i < kNvBlock; ++i) halves[i] = encode<Format::e2m1>(block.elements[i]);
    for (int64_t i = 0; i < (width + 1) / 2; ++i) {  // codes of the padding are 0
      codes[c / 2 + i] = static_cast<uint8_t>(halves[2 * i] | halves[2 * i + 1] << 4);
    }
  }
}

/// Rows [first, first + rows) of m, a strip of up to 128 that starts at a multiple of 128.
template <Format F>
void quantize_strip(QuantizedMatrix& m, const float* values, int64_t first, int64_t rows) {
  const int64_t cols = m.cols, blocks = blocks_of(cols, kFp8Block);
  const float* x = values + first * cols;
  if (m.how.scaling == Scaling::block128x128) {
    strip_scales(m.scales.data() + first / kFp8Block * blocks, x, rows, cols, F);
  }
  for (int64_t r = first; r < first + rows; ++r, x += cols) {
    uint8_t* codes = m.codes.data() + r * row_bytes<F>(cols);
    switch (m.how.scaling) {
      case Scaling::none:
        encode_run<F>(codes, 0, x, cols, 1.0f);
        break;
      case Scaling::tensor:
        encode_run<F>(codes, 0, x, cols, m.scales[0]);
        break;
      case Scaling::channel:
        m.scales[r] = fp32_scale(block_range(x, cols).amax, F);
        encode_run<F>(codes, 0, x, cols, m.scales[r]);
        break;
      case Scaling::block1x128:
        strip_scales(m.scales.data() + r * blocks, x, 1, cols, F);
        [[fallthrough]];
      case Scaling::block128x128: {
        const float* scales = m.scales.data() + (m.how.scaling == Scaling::block1x128 ? r : r / kFp8Block) * blocks;
        for (int64_t c = 0; c < cols; c += kFp8Block) {
          encode_run<F>(codes, c, x + c, std::min(kFp8Block, cols - c), scales[c / kFp8Block]);
        }
        break;
      }
      case Scaling::mx32:
        encode_mx_row<F>(codes, m.block_codes.data() + r * blocks_of(cols, kMxBlock), x, cols);
        break;
      case Scaling::nv16:
        encode_nv_row(codes, m.block_codes.data() + r * blocks_of(cols, kNvBlock), x, cols, m.scales[0],
                      m.how.four_over_six);
        break;
    }
  }
}

size_t scale_count(Scaling scaling, int64_t rows, int64_t cols) {
  switch (scaling) {
    case Scaling::tensor:
    case Scaling::nv16:
      return 1;
    case Scaling::channel:
      return static_cast<size_t>(rows);
    case Scaling::block128x128:
      return static_cast<size_t>(blocks_of(rows, kFp8Block) * blocks_of(cols, kFp8Block));
    case Scaling::block1x128:
      return static_cast<size_t>(rows * blocks_of(cols, kFp8Block));
    default:
      return 0;
  }
}

void check_size(size_t have, const QuantizedMatrix& m) {
  if (have != static_cast<size_t>(m.rows * m.cols)) {
    throw std::invalid_argument("quantize: got " + std::to_string(have) + " values for [" + std::to_string(m.rows) +
                                ", " + std::to_string(m.cols) + "]");
  }
}

/// The fp32 scale of element (row, col..) of a block, or of the whole row.
float scale_at(const QuantizedMatrix& m, int64_t row, int64_t col) {
  const int64_t blocks = blocks_of(m.cols, kFp8Block);
  switch (m.how.scaling) {
    case Scaling::tensor:
    case Scaling::nv16:
      return m.scales[0];
    case Scaling::channel:
      return m.scales[static_cast<size_t>(row)];
    case Scaling::block128x128:
      return m.scales[static_cast<size_t>(row / kFp8Block * blocks + col / kFp8Block)];
    case Scaling::block1x128:
      return m.scales[static_cast<size_t>(row * blocks + col / kFp8Block)];
    default:
      return 1.0f;
  }
}

}  // namespace

void check_quantization(const Quantization& how) {
  if (how.format == Format::fp64 || how.format == Format::ue8m0) {
    throw std::invalid_argument("quantize: no elements of format " + std::string(format_name(how.format)));
  }
  const bool small = how.format == Format::e4m3 || how.format == Format::e5m2 || how.format == Format::e2m1;
  if (how.scaling == Scaling::nv16 && how.format != Format::e2m1) {
    throw std::invalid_argument("quantize: nv16 has e2m1 elements, not " + std::string(format_name(how.format)));
  }
  if (how.scaling != Scaling::none && !small) {
    throw std::invalid_argument("quantize: scales are for e4m3, e5m2 and e2m1, not " +
                                std::string(format_name(how.format)));
  }
  if (how.four_over_six && how.scaling != Scaling::nv16) {
    throw std::invalid_argument("quantize: four_over_six is for nv16 only");
  }
}

float largest_magnitude(std::span<const float> values) {
  return block_range(values.data(), static_cast<int64_t>(values.size())).amax;
}

QuantizedMatrix quantize(std::span<const float> values, int64_t rows, int64_t cols, const Quantization& how,
                         float shared_amax) {
  QuantizedMatrix m;
  m.how = how;
  m.rows = rows;
  m.cols = cols;
  check_size(values.size(), m);
  check_quantization(how);
  m.codes.resize(static_cast<size_t>(rows * row_bytes(how.format, cols)));
  m.scales.resize(scale_count(how.scaling, rows, cols));
  if (how.scaling == Scaling::mx32) m.block_codes.resize(static_cast<size_t>(rows * blocks_of(cols, kMxBlock)));
  if (how.scaling == Scaling::nv16) m.block_codes.resize(static_cast<size_t>(rows * blocks_of(cols, kNvBlock)));
  if (how.scaling == Scaling::tensor || how.scaling == Scaling::nv16) {
    const float amax = shared_amax > 0.0f ? std::min(shared_amax, kFloatMax) : largest_magnitude(values);
    m.scales[0] = how.scaling == Scaling::nv16 ? nv_tensor_scale(amax) : fp32_scale(amax, how.format);
  }
  visit_format(how.format, [&]<Format F>() {
    parallel_for(blocks_of(rows, kFp8Block), 1, [&](int64_t begin, int64_t end) {
      for (int64_t strip = begin; strip < end; ++strip) {
        const int64_t first = strip * kFp8Block;
        quantize_strip<F>(m, values.data(), first, std::min(kFp8Block, rows - first));
      }
    });
  });
  return m;
}

void decode_codes(const QuantizedMatrix& m, std::span<float> out) {
  check_size(out.size(), m);
  visit_format(m.how.format, [&]<Format F>() {
    for (int64_t r = 0; r < m.rows; ++r) {
      float* y = out.data() + r * m.cols;
      decode_row<F>(y, m.codes.data() + r * row_bytes<F>(m.cols), m.cols);
      if (m.block_codes.empty()) continue;
      const bool mx = m.how.scaling == Scaling::mx32;
      const int64_t block = mx ? kMxBlock : kNvBlock;
      const uint8_t* scales = m.block_codes.data() + r * blocks_of(m.cols, block);
      for (int64_t c = 0; c < m.cols; c += block) {
        const float scale = mx ? ue8m0_to_float(scales[c / block]) : e4m3_to_float(scales[c / block]);
        for (int64_t i = c; i < std::min(c + block, m.cols); ++i) y[i] *= scale;
      }
    }
  });
}

void dequantize(const QuantizedMatrix& m, std::span<float> out) {
  decode_codes(m, out);
  if (m.scales.empty()) return;
  for (int64_t r = 0; r < m.rows; ++r) {
    float* y = out.data() + r * m.cols;
    for (int64_t c = 0; c < m.cols; c += kFp8Block) {
      const float scale = scale_at(m, r, c);
      for (int64_t i = c; i < std::min(c + kFp8Block, m.cols); ++i) y[i] *= scale;
    }
  }
}

}  // namespace motley::kernels
