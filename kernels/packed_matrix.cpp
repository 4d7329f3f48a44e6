#include "kernels/packed_matrix.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "kernels/cpu/matmul_inner.h"
#include "kernels/matmul.h"
#include "kernels/packed_layout.h"
#include "kernels/parallel.h"
#include "kernels/quantize.h"

namespace motley::kernels {
namespace {

PackedMatrix empty_matrix(int64_t rows, int64_t cols, Format format, Scaling scaling) {
  PackedMatrix packed;
  packed.rows = rows;
  packed.cols = cols;
  packed.format = format;
  packed.scaling = scaling;
  const int64_t panels = (rows + kPanelRows - 1) / kPanelRows;
  packed.codes.resize(static_cast<size_t>(panels * panel_bytes(format, cols)));
  if (format != Format::fp32 || rows % kPanelRows != 0)  // else every byte is set
    std::fill(packed.codes.begin(), packed.codes.end(), uint8_t{0});
  packed.block_codes.assign(static_cast<size_t>(panels * panel_block_bytes(scaling, cols)), 0);
  return packed;
}

/// out[count][16] = up to sixteen rows of `count` elements, strides in elements.
template <class T>
void interleave(const T* in, int64_t row_stride, int64_t col_stride, int64_t rows, int64_t count, T* out) {
  constexpr int64_t kRun = 64 / sizeof(T);  // of a row at a time: a cache line
  for (int64_t k = 0; k < count; k += kRun) {
    const int64_t end = std::min(count, k + kRun);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = k; i < end; ++i) out[i * kPanelRows + r] = in[r * row_stride + i * col_stride];
  }
}

/// 8-bit codes, `count` to a row, each at its byte_place.
void interleave_codes(const uint8_t* in, int64_t row_bytes, int64_t rows, int64_t count, uint8_t* out) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t k = 0; k < count; ++k) out[byte_place(k, r)] = in[r * row_bytes + k];
}

/// Rows of bytes, `length` each and row_bytes apart, as panels of out[length][16] words of T.
template <class T>
void interleave_bytes(const uint8_t* in, int64_t row_bytes, int64_t rows, int64_t length, uint8_t* out) {
  const int64_t whole = length / static_cast<int64_t>(sizeof(T)), rest = length % static_cast<int64_t>(sizeof(T));
  for (int64_t r = 0; r < rows; ++r) {
    const uint8_t* row = in + r * row_bytes;
    for (int64_t i = 0; i < whole; ++i)
      std::memcpy(out + (i * kPanelRows + r) * static_cast<int64_t>(sizeof(T)),
                  row + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    if (rest != 0)
      std::memcpy(out + (whole * kPanelRows + r) * static_cast<int64_t>(sizeof(T)),
                  row + whole * static_cast<int64_t>(sizeof(T)), static_cast<size_t>(rest));
  }
}

/// The reverse: rows of `row_bytes` each, from a panel of words.
template <class T>
void separate_bytes(const uint8_t* in, int64_t row_bytes, int64_t rows, uint8_t* out) {
  constexpr auto kWord = static_cast<int64_t>(sizeof(T));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t at = 0; at < row_bytes; at += kWord)
      std::memcpy(out + r * row_bytes + at, in + (at / kWord * kPanelRows + r) * kWord,
                  static_cast<size_t>(std::min(kWord, row_bytes - at)));
}

/// Of the block scales that are part of a value.
Scaling block_scaling(const Quantization& how) {
  return how.scaling == Scaling::mx32 || how.scaling == Scaling::nv16 ? how.scaling : Scaling::none;
}

template <class Body>
void for_panels(const PackedMatrix& packed, Body&& body) {
  parallel_for((packed.rows + kPanelRows - 1) / kPanelRows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) body(p, std::min(kPanelRows, packed.rows - p * kPanelRows));
  });
}

void pack_elements(const ConstMatrix& b, PackedMatrix& packed) {
  const int64_t size = panel_bytes(packed.format, b.cols);
  for_panels(packed, [&](int64_t p, int64_t rows) {
    uint8_t* out = packed.codes.data() + p * size;
    if (b.dtype == DType::f32) return cpu::pack_panel(b, p, reinterpret_cast<float*>(out));
    const uint16_t* in = static_cast<const uint16_t*>(b.data) + p * kPanelRows * b.row_stride;
    interleave(in, b.row_stride, b.col_stride, rows, b.cols, reinterpret_cast<uint16_t*>(out));
  });
}

/// Codes beyond the quick decoding of e4m3: NaN, and block scales that overflow when multiplied by 256.
bool has_rare_codes(const QuantizedMatrix& b) {
  const auto has_nan = [](const std::vector<uint8_t>& codes) {
    bool found = false;
    for (const uint8_t code : codes) found |= (code & 0x7fu) == 0x7fu;
    return found;
  };
  if (b.how.scaling == Scaling::nv16) return has_nan(b.block_codes);
  if (b.how.format != Format::e4m3) return false;
  const auto too_large = [](uint8_t code) { return code > 246; };
  return has_nan(b.codes) ||
         (b.how.scaling == Scaling::mx32 && std::any_of(b.block_codes.begin(), b.block_codes.end(), too_large));
}

}  // namespace

PackedMatrix pack(const ConstMatrix& b) {
  if (b.dtype == DType::f64) throw std::logic_error("pack: float64 matrices are not packed");
  const Format format = b.dtype == DType::f32 ? Format::fp32 : b.dtype == DType::bf16 ? Format::bf16 : Format::fp16;
  PackedMatrix packed = empty_matrix(b.rows, b.cols, format, Scaling::none);
  pack_elements(b, packed);
  return packed;
}

PackedMatrix pack(const QuantizedMatrix& b) {
  check_sizes(b);
  const Format format = b.how.format;
  const Scaling scaling = block_scaling(b.how);
  const int64_t length = block_length(scaling);
  const int64_t blocks = length == 0 ? 0 : (b.cols + length - 1) / length;
  const int64_t row_bytes = code_bytes(format, b.cols);
  PackedMatrix packed = empty_matrix(b.rows, b.cols, format, scaling);
  packed.rare = has_rare_codes(b);
  const int64_t size = panel_bytes(format, b.cols), block_size = panel_block_bytes(scaling, b.cols);
  for_panels(packed, [&](int64_t p, int64_t rows) {
    const uint8_t* in = b.codes.data() + p * kPanelRows * row_bytes;
    uint8_t* out = packed.codes.data() + p * size;
    if (format == Format::e2m1 || format == Format::fp32)
      interleave_bytes<uint32_t>(in, row_bytes, rows, row_bytes, out);
    else if (format == Format::bf16 || format == Format::fp16)
      interleave_bytes<uint16_t>(in, row_bytes, rows, row_bytes, out);
    else
      interleave_codes(in, row_bytes, rows, row_bytes, out);
    if (blocks != 0)
      interleave(b.block_codes.data() + p * kPanelRows * blocks, blocks, 1, rows, blocks,
                 packed.block_codes.data() + p * block_size);
  });
  return packed;
}

QuantizedMatrix unpack(const PackedMatrix& packed, const Quantization& how) {
  check_quantization(how);
  if (how.format != packed.format || block_scaling(how) != packed.scaling)
    throw std::invalid_argument("unpack: the matrix was packed from another quantization");
  QuantizedMatrix m;
  m.how = how;
  m.rows = packed.rows;
  m.cols = packed.cols;
  const QuantizedSizes sizes = quantized_sizes(how, m.rows, m.cols);
  m.codes.resize(sizes.codes);
  m.block_codes.resize(sizes.block_codes);
  const int64_t row_bytes = code_bytes(how.format, m.cols), length = block_length(packed.scaling);
  const int64_t blocks = length == 0 ? 0 : (m.cols + length - 1) / length;
  const int64_t size = panel_bytes(how.format, m.cols), block_size = panel_block_bytes(packed.scaling, m.cols);
  for_panels(packed, [&](int64_t p, int64_t rows) {
    const uint8_t* in = packed.codes.data() + p * size;
    uint8_t* out = m.codes.data() + p * kPanelRows * row_bytes;
    if (how.format == Format::e2m1 || how.format == Format::fp32)
      separate_bytes<uint32_t>(in, row_bytes, rows, out);
    else if (how.format == Format::bf16 || how.format == Format::fp16)
      separate_bytes<uint16_t>(in, row_bytes, rows, out);
    else
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t k = 0; k < m.cols; ++k) out[r * row_bytes + k] = in[byte_place(k, r)];
    if (blocks != 0)
      separate_bytes<uint8_t>(packed.block_codes.data() + p * block_size, blocks, rows,
                              m.block_codes.data() + p * kPanelRows * blocks);
  });
  return m;
}

}  // namespace motley::kernels
