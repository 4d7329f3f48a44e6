#include "kernels/quantize.h"

#include <atomic>
#include <cstring>
#include <stdexcept>
#include <string>

#include "kernels/cpu/quantize_row.h"
#include "kernels/parallel.h"
#include "kernels/quantize_block.h"

namespace motley::kernels {
namespace {

constexpr int64_t kPieceValues = int64_t{1} << 15;  // that pay for waking a thread

constexpr int64_t grain_of(int64_t values) { return 1 + kPieceValues / (values + 1); }

constexpr int64_t blocks_of(int64_t count, int64_t block) { return (count + block - 1) / block; }

template <Format F>
using CodeType = std::conditional_t<F == Format::fp32, uint32_t,
                                    std::conditional_t<F == Format::bf16 || F == Format::fp16, uint16_t, uint8_t>>;

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

/// The scales of up to 128 rows, one per 128 columns.
void strip_scales(float* scales, const float* x, int64_t rows, int64_t cols, Format format) {
  for (int64_t c = 0; c < cols; c += kFp8Block) {
    const BlockRange range = cpu::range_of(x + c, cols, rows, std::min(kFp8Block, cols - c));
    scales[c / kFp8Block] = fp32_scale(range.amax, format);
  }
}

int64_t block_code_count(Scaling scaling, int64_t cols) {
  if (scaling == Scaling::mx32) return blocks_of(cols, kMxBlock);
  return scaling == Scaling::nv16 ? blocks_of(cols, kNvBlock) : 0;
}

/// Rows [first, first + rows) of m; with 128x128 blocks a strip of up to 128 that starts at a multiple of 128.
void quantize_rows(QuantizedMatrix& m, const float* values, int64_t first, int64_t rows) {
  const int64_t cols = m.cols, blocks = blocks_of(cols, kFp8Block), bytes = code_bytes(m.how.format, cols);
  const Scaling scaling = m.how.scaling;
  const int64_t block_codes = block_code_count(scaling, cols);
  const int64_t row_scales = scaling == Scaling::channel ? 1 : scaling == Scaling::block1x128 ? blocks : 0;
  float* scales = m.scales.data();
  if (scaling == Scaling::block128x128) {
    scales += first / kFp8Block * blocks;
    strip_scales(scales, values + first * cols, rows, cols, m.how.format);
  }
  for (int64_t r = first; r < first + rows; ++r) {
    cpu::EncodeRow row;
    row.how = m.how;
    row.x = values + r * cols;
    row.cols = cols;
    row.codes = m.codes.data() + r * bytes;
    row.block_codes = m.block_codes.data() + r * block_codes;
    row.scales = scales + r * row_scales;
    cpu::encode_row(row);
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

int64_t code_bytes(Format format, int64_t cols) {
  if (format == Format::e2m1) return (cols + 1) / 2;
  return cols * (format == Format::fp32 ? 4 : format == Format::bf16 || format == Format::fp16 ? 2 : 1);
}

QuantizedSizes quantized_sizes(const Quantization& how, int64_t rows, int64_t cols) {
  return {static_cast<size_t>(rows * code_bytes(how.format, cols)),
          static_cast<size_t>(rows * block_code_count(how.scaling, cols)), scale_count(how.scaling, rows, cols)};
}

void check_sizes(const QuantizedMatrix& m) {
  check_quantization(m.how);
  if (m.rows < 0 || m.cols < 0) throw std::invalid_argument("quantized matrix: a negative size");
  const QuantizedSizes have{m.codes.size(), m.block_codes.size(), m.scales.size()};
  const QuantizedSizes want = quantized_sizes(m.how, m.rows, m.cols);
  if (have == want) return;
  const auto text = [](const QuantizedSizes& sizes) {
    return std::to_string(sizes.codes) + " bytes of codes, " + std::to_string(sizes.block_codes) +
           " block scales and " + std::to_string(sizes.scales) + " scales";
  };
  throw std::invalid_argument("quantized matrix [" + std::to_string(m.rows) + ", " + std::to_string(m.cols) +
                              "]: got " + text(have) + "; it has " + text(want));
}

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
  std::atomic<float> largest = 0.0f;
  parallel_for(static_cast<int64_t>(values.size()), kPieceValues, [&](int64_t begin, int64_t end) {
    const float amax = cpu::range_of(values.data() + begin, 0, 1, end - begin).amax;
    float before = largest.load();
    while (amax > before && !largest.compare_exchange_weak(before, amax)) continue;
  });
  return largest;
}

QuantizedMatrix quantize(std::span<const float> values, int64_t rows, int64_t cols, const Quantization& how,
                         float shared_amax) {
  QuantizedMatrix m;
  m.how = how;
  m.rows = rows;
  m.cols = cols;
  check_size(values.size(), m);
  check_quantization(how);
  const QuantizedSizes sizes = quantized_sizes(how, rows, cols);
  m.codes.resize(sizes.codes);
  m.block_codes.resize(sizes.block_codes);
  m.scales.resize(sizes.scales);
  if (how.scaling == Scaling::tensor || how.scaling == Scaling::nv16) {
    const float amax = shared_amax > 0.0f ? std::min(shared_amax, kFloatMax) : largest_magnitude(values);
    m.scales[0] = how.scaling == Scaling::nv16 ? nv_tensor_scale(amax) : fp32_scale(amax, how.format);
  }
  const int64_t strip = how.scaling == Scaling::block128x128 ? kFp8Block : 1;
  parallel_for(blocks_of(rows, strip), grain_of(strip * cols), [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) quantize_rows(m, values.data(), s * strip, std::min(strip, rows - s * strip));
  });
  return m;
}

void decode_codes(const QuantizedMatrix& m, std::span<float> out) {
  check_size(out.size(), m);
  const bool mx = m.how.scaling == Scaling::mx32;
  const int64_t block = mx ? kMxBlock : kNvBlock;
  visit_format(m.how.format, [&]<Format F>() {
    parallel_for(m.rows, grain_of(m.cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        float* y = out.data() + r * m.cols;
        decode_row<F>(y, m.codes.data() + r * code_bytes(F, m.cols), m.cols);
        if (m.block_codes.empty()) continue;
        const uint8_t* scales = m.block_codes.data() + r * blocks_of(m.cols, block);
        for (int64_t c = 0; c < m.cols; c += block) {
          const float scale = mx ? ue8m0_to_float(scales[c / block]) : e4m3_to_float(scales[c / block]);
          for (int64_t i = c; i < std::min(c + block, m.cols); ++i) y[i] *= scale;
        }
      }
    });
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
