#include "kernels/cpu/quantize_row.h"

#include <cstring>

#include "kernels/cpu/highway_baseline.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/quantize_row.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/quantize_nv-inl.h"
#include "kernels/cpu/quantize_vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace motley::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// How a value meets its scale before it is rounded.
enum class Step : uint8_t { keep, divide, multiply };
template <Step S>
Vector stepped(Vector x, Vector scale) {
  if constexpr (S == Step::divide) return hn::Div(x, scale);
  if constexpr (S == Step::multiply) return hn::Mul(x, scale);
  return x;
}

/// Values i.. of a run that ends inside the vector, zeros beyond.
inline Vector load_rest(const float* x, int64_t count) {
  alignas(64) float rest[kWidth] = {};
  std::memcpy(rest, x, static_cast<size_t>(count) * sizeof(float));
  return hn::Load(Tag(), rest);
}

template <Format F, Step S>
void encode_run(uint8_t* codes, const float* x, int64_t count, float factor) {
  const Vector scale = hn::Set(Tag(), factor);
  int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth)
    store_codes<F>(stepped<S>(hn::LoadU(Tag(), x + i), scale), codes + code_bytes<F>(i));
  if (i == count) return;
  alignas(64) uint8_t rest[code_bytes<F>(kWidth)];
  store_codes<F>(stepped<S>(load_rest(x + i, count - i), scale), rest);
  std::memcpy(codes + code_bytes<F>(i), rest, static_cast<size_t>(code_bytes<F>(count - i)));
}

/// x = rounded(x stepped by `factor`) * after.
template <Format F, Step S, bool kAfter>
void round_run(float* x, int64_t count, float factor, float after) {
  const Vector scale = hn::Set(Tag(), factor), last = hn::Set(Tag(), after);
  const auto value = [&](Vector v) {
    const Vector near = rounded_to<F>(stepped<S>(v, scale));
    return kAfter ? hn::Mul(near, last) : near;
  };
  int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) hn::StoreU(value(hn::LoadU(Tag(), x + i)), Tag(), x + i);
  if (i == count) return;
  alignas(64) float rest[kWidth];
  hn::Store(value(load_rest(x + i, count - i)), Tag(), rest);
  std::memcpy(x + i, rest, static_cast<size_t>(count - i) * sizeof(float));
}

/// The largest magnitude as bits; with kNumbers NaN left out.
template <bool kNumbers>
int32_t largest_bits(const float* x, int64_t stride, int64_t rows, int64_t cols) {
  const auto magnitude = [](Vector v) {
    const auto bits = magnitude_bits(v);
    return kNumbers ? hn::IfThenZeroElse(is_nan(bits), bits) : bits;
  };
  auto even = hn::Zero(SignedTag()), odd = even;
  for (int64_t r = 0; r < rows; ++r, x += stride) {
    int64_t i = 0;
    for (; i + 2 * kWidth <= cols; i += 2 * kWidth) {
      even = hn::Max(even, magnitude(hn::LoadU(Tag(), x + i)));
      odd = hn::Max(odd, magnitude(hn::LoadU(Tag(), x + i + kWidth)));
    }
    for (; i < cols; i += kWidth)
      even = hn::Max(even, magnitude(i + kWidth <= cols ? hn::LoadU(Tag(), x + i) : load_rest(x + i, cols - i)));
  }
  return hn::GetLane(hn::MaxOfLanes(SignedTag(), hn::Max(even, odd)));
}
BlockRange range_rows(const float* x, int64_t stride, int64_t rows, int64_t cols) {
  const int32_t largest = largest_bits<false>(x, stride, rows, cols);
  const bool has_nan = largest > 0x7f800000;
  const int32_t amax = has_nan ? largest_bits<true>(x, stride, rows, cols) : largest;
  return {std::bit_cast<float>(std::min(amax, 0x7f7fffff)), has_nan};
}
inline BlockRange range_run(const float* x, int64_t count) { return range_rows(x, 0, 1, count); }

template <Format F>
void encode_mx(const EncodeRow& row) {
  for (int64_t c = 0; c < row.cols; c += kMxBlock) {
    const int64_t width = std::min(kMxBlock, row.cols - c);
    const BlockRange range = range_run(row.x + c, width);
    const uint8_t scale = mx_scale(range, F);
    row.block_codes[c / kMxBlock] = scale;
    uint8_t* codes = row.codes + code_bytes<F>(c);
    // The inverse of a power of two is exact, so the product is the quotient.
    if (!range.has_nan)
      encode_run<F, Step::multiply>(codes, row.x + c, width, ue8m0_to_float(static_cast<uint8_t>(254 - scale)));
    else
      std::memset(codes, 0, static_cast<size_t>(code_bytes<F>(width)));
  }
}
template <Format F>
void round_mx(float* x, int64_t cols) {
  for (int64_t c = 0; c < cols; c += kMxBlock) {
    const int64_t width = std::min(kMxBlock, cols - c);
    const uint8_t scale = mx_scale(range_run(x + c, width), F);  // 0xff, and its inverse, are NaN
    const float inverse = ue8m0_to_float(scale == 0xff ? 0xff : static_cast<uint8_t>(254 - scale));
    round_run<F, Step::multiply, true>(x + c, width, inverse, ue8m0_to_float(scale));
  }
}

template <Format F>
void encode_fp8_blocks(const EncodeRow& row, bool scales_given) {
  for (int64_t c = 0; c < row.cols; c += kFp8Block) {
    const int64_t width = std::min(kFp8Block, row.cols - c);
    float& scale = row.scales[c / kFp8Block];
    if (!scales_given) scale = fp32_scale(range_run(row.x + c, width).amax, F);
    encode_run<F, Step::divide>(row.codes + code_bytes<F>(c), row.x + c, width, scale);
  }
}
template <Format F>
void round_fp8_blocks(float* x, int64_t cols, float* scales) {
  for (int64_t c = 0; c < cols; c += kFp8Block) {
    const int64_t width = std::min(kFp8Block, cols - c);
    const float scale = fp32_scale(range_run(x + c, width).amax, F);
    scales[c / kFp8Block] = scale;
    round_run<F, Step::divide, false>(x + c, width, scale, 1.0f);
  }
}

/// Columns [c, c + 256) of a row, zeros beyond its end, as [16 elements][16 blocks].
inline void load_tile(const float* x, int64_t cols, float* tile) {
  if (cols >= kTileCols) return transpose_tile(x, tile);
  alignas(64) float padded[kTileCols] = {};
  std::memcpy(padded, x, static_cast<size_t>(cols) * sizeof(float));
  transpose_tile(padded, tile);
}

void encode_nv(const EncodeRow& row) {
  alignas(64) float tile[kTileCols];
  alignas(64) uint32_t words[2 * kTileBlocks];  // 8 codes each, the even column in the low half of its byte
  alignas(64) uint32_t scales[kTileBlocks];
  NvLanes lanes;
  for (int64_t c = 0; c < row.cols; c += kTileCols) {
    const int64_t width = std::min(kTileCols, row.cols - c), blocks = (width + kNvBlock - 1) / kNvBlock;
    load_tile(row.x + c, width, tile);
    for (int64_t first = 0; first < blocks; first += kWidth) {
      nv_encode_lanes(tile + first, row.scales[0], row.how.four_over_six, lanes);
      Codes low = hn::Zero(UnsignedTag()), high = hn::Zero(UnsignedTag());
      for (int i = 7; i >= 0; --i) {
        low = hn::Or(hn::ShiftLeft<4>(low), codes_of<Format::e2m1>(hn::Load(Tag(), lanes.elements[i])));
        high = hn::Or(hn::ShiftLeft<4>(high), codes_of<Format::e2m1>(hn::Load(Tag(), lanes.elements[i + 8])));
      }
      hn::StoreInterleaved2(low, high, UnsignedTag(), words + 2 * first);
      hn::Store(lanes.code, UnsignedTag(), scales + first);
    }
    std::memcpy(row.codes + c / 2, words, static_cast<size_t>((width + 1) / 2));
    for (int64_t b = 0; b < blocks; ++b) row.block_codes[c / kNvBlock + b] = static_cast<uint8_t>(scales[b]);
  }
}

float round_nv(float* x, int64_t cols, bool four_over_six) {
  const float tensor_scale = nv_tensor_scale(range_run(x, cols).amax);
  alignas(64) float tile[kTileCols], values[kTileCols];
  NvLanes lanes;
  for (int64_t c = 0; c < cols; c += kTileCols) {
    const int64_t width = std::min(kTileCols, cols - c);
    load_tile(x + c, width, tile);
    for (int64_t first = 0; first < kTileBlocks; first += kWidth) {
      nv_encode_lanes(tile + first, tensor_scale, four_over_six, lanes);
      for (int64_t i = 0; i < kNvBlock; ++i)
        hn::Store(hn::Mul(hn::Load(Tag(), lanes.elements[i]), lanes.scale), Tag(), tile + i * kTileBlocks + first);
    }
    transpose_tile(tile, values);
    std::memcpy(x + c, values, static_cast<size_t>(width) * sizeof(float));
  }
  return tensor_scale;
}

template <Format F>
void encode_small(const EncodeRow& row) {
  switch (row.how.scaling) {
    case Scaling::channel:
      row.scales[0] = fp32_scale(range_run(row.x, row.cols).amax, F);
      [[fallthrough]];
    case Scaling::tensor:
      return encode_run<F, Step::divide>(row.codes, row.x, row.cols, row.scales[0]);
    case Scaling::block1x128:
      return encode_fp8_blocks<F>(row, false);
    case Scaling::block128x128:
      return encode_fp8_blocks<F>(row, true);
    case Scaling::mx32:
      return encode_mx<F>(row);
    default:
      return encode_run<F, Step::keep>(row.codes, row.x, row.cols, 1.0f);
  }
}
void encode_any(const EncodeRow& row) {
  switch (row.how.format) {
    case Format::bf16:
      return encode_run<Format::bf16, Step::keep>(row.codes, row.x, row.cols, 1.0f);
    case Format::fp16:
      return encode_run<Format::fp16, Step::keep>(row.codes, row.x, row.cols, 1.0f);
    case Format::e4m3:
      return encode_small<Format::e4m3>(row);
    case Format::e5m2:
      return encode_small<Format::e5m2>(row);
    case Format::e2m1:
      return row.how.scaling == Scaling::nv16 ? encode_nv(row) : encode_small<Format::e2m1>(row);
    default:
      return encode_run<Format::fp32, Step::keep>(row.codes, row.x, row.cols, 1.0f);
  }
}

template <Format F>
float round_as(float* x, int64_t cols, const Quantization& how, float* block_scales) {
  switch (how.scaling) {
    case Scaling::tensor:
    case Scaling::channel: {
      const float scale = fp32_scale(range_run(x, cols).amax, F);
      round_run<F, Step::divide, false>(x, cols, scale, 1.0f);
      return scale;
    }
    case Scaling::block1x128:
      round_fp8_blocks<F>(x, cols, block_scales);
      return 1.0f;
    case Scaling::mx32:
      round_mx<F>(x, cols);
      return 1.0f;
    default:
      round_run<F, Step::keep, false>(x, cols, 1.0f, 1.0f);
      return 1.0f;
  }
}
float round_any(float* x, int64_t cols, const Quantization& how, float* block_scales) {
  switch (how.format) {
    case Format::bf16:
      round_run<Format::bf16, Step::keep, false>(x, cols, 1.0f, 1.0f);
      return 1.0f;
    case Format::fp16:
      round_run<Format::fp16, Step::keep, false>(x, cols, 1.0f, 1.0f);
      return 1.0f;
    case Format::e4m3:
      return round_as<Format::e4m3>(x, cols, how, block_scales);
    case Format::e5m2:
      return round_as<Format::e5m2>(x, cols, how, block_scales);
    case Format::e2m1:
      if (how.scaling == Scaling::nv16) return round_nv(x, cols, how.four_over_six);
      return round_as<Format::e2m1>(x, cols, how, block_scales);
    default:
      return 1.0f;
  }
}

}  // namespace motley::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace motley::kernels::cpu {

HWY_EXPORT(encode_any);
HWY_EXPORT(round_any);
HWY_EXPORT(range_rows);

void encode_row(const EncodeRow& row) { HWY_DYNAMIC_DISPATCH(encode_any)(row); }
float round_row(float* x, int64_t cols, const Quantization& how, float* block_scales) {
  return HWY_DYNAMIC_DISPATCH(round_any)(x, cols, how, block_scales);
}
BlockRange range_of(const float* x, int64_t stride, int64_t rows, int64_t cols) {
  return HWY_DYNAMIC_DISPATCH(range_rows)(x, stride, rows, cols);
}

}  // namespace motley::kernels::cpu
#endif
