// NVFP4 blocks, sixteen or eight at once: a lane holds a block. Included once per instruction set by
// kernels/cpu/quantize_row.cpp, after Highway; the scalar rules are in kernels/quantize_block.h.
#if defined(MOTLEY_QUANTIZE_NV) == defined(HWY_TARGET_TOGGLE)
#ifdef MOTLEY_QUANTIZE_NV
#undef MOTLEY_QUANTIZE_NV
#else
#define MOTLEY_QUANTIZE_NV
#endif

#include "kernels/cpu/quantize_vector-inl.h"
#include "kernels/cpu/transpose.h"
#include "kernels/quantize_block.h"

HWY_BEFORE_NAMESPACE();
namespace motley::kernels::cpu::HWY_NAMESPACE {

// nv16: a tile of 16 blocks is transposed, so that a lane holds a block and every step runs over 16 or 8 blocks at
// once.
constexpr int64_t kTileBlocks = 16, kTileCols = kTileBlocks * kNvBlock;

/// out[c][r] = in[r][c], 16 by 16.
inline void transpose_tile(const float* in, float* out) {
  for (int64_t r = 0; r < 16; r += 4)
    for (int64_t c = 0; c < 16; c += 4) transpose4(in + r * 16 + c, 16, out + c * 16 + r, 16);
}

/// The encoded blocks of kWidth lanes of a tile: their e2m1 values, and their e4m3 scale as code and as value.
struct NvLanes {
  alignas(64) float elements[kNvBlock][kWidth];
  Codes code;
  Vector scale;
};
struct NvScale {
  Codes code;
  Vector value, divisor;
};
inline NvScale nv_scale(Vector amax, float target, Vector tensor_scale) {
  const Vector wanted = hn::Div(hn::Div(amax, hn::Set(Tag(), target)), tensor_scale);
  NvScale scale;
  scale.code = hn::Max(codes_of<Format::e4m3>(wanted), hn::Set(UnsignedTag(), 1u));
  scale.value = hn::Max(rounded_to<Format::e4m3>(wanted), hn::Set(Tag(), 0x1p-9f));
  scale.divisor = hn::Mul(scale.value, tensor_scale);
  return scale;
}
/// x / divisor rounded to e2m1.
inline Vector nv_element(Vector x, const NvScale& scale) { return rounded_to<Format::e2m1>(hn::Div(x, scale.divisor)); }

/// Sums of squares in double, element by element as in nv_error: two halves of the lanes.
struct NvError {
  using Tag64 = hn::Rebind<double, hn::Half<Tag>>;
  hn::Vec<Tag64> low, high;
  NvError() : low(hn::Zero(Tag64())), high(hn::Zero(Tag64())) {}
  void add(Vector x, Vector value) {
    const hn::Half<Tag> half;
    const auto dl =
        hn::Sub(hn::PromoteTo(Tag64(), hn::LowerHalf(half, x)), hn::PromoteTo(Tag64(), hn::LowerHalf(half, value)));
    const auto dh =
        hn::Sub(hn::PromoteTo(Tag64(), hn::UpperHalf(half, x)), hn::PromoteTo(Tag64(), hn::UpperHalf(half, value)));
    low = hn::Add(low, hn::Mul(dl, dl));
    high = hn::Add(high, hn::Mul(dh, dh));
  }
};
/// Lanes whose `four` is below their `six`.
inline auto errs_less(const NvError& four, const NvError& six) {
  const NvError::Tag64 tag;
  const hn::Half<Tag> half;
  const auto one = hn::Set(tag, 1.0), zero = hn::Zero(tag);
  const auto low = hn::DemoteTo(half, hn::IfThenElse(hn::Lt(four.low, six.low), one, zero));
  const auto high = hn::DemoteTo(half, hn::IfThenElse(hn::Lt(four.high, six.high), one, zero));
  return hn::Gt(hn::Combine(Tag(), high, low), hn::Zero(Tag()));
}

/// The elements of kWidth blocks, x[16][kTileBlocks], by one scale a block.
inline void nv_map(const float* x, const NvScale& scale, NvLanes& out) {
  for (int64_t i = 0; i < kNvBlock; ++i)
    hn::Store(nv_element(hn::Load(Tag(), x + i * kTileBlocks), scale), Tag(), out.elements[i]);
}
/// The same by the scale that errs less, `six` in a tie; true in the lanes that took `four`.
inline auto nv_map_better(const float* x, const NvScale& six, const NvScale& four, Vector tensor_scale, NvLanes& out) {
  alignas(64) float to_four[kNvBlock][kWidth];
  NvError six_error, four_error;
  for (int64_t i = 0; i < kNvBlock; ++i) {
    const Vector value = hn::Load(Tag(), x + i * kTileBlocks);
    const Vector s = nv_element(value, six), f = nv_element(value, four);
    six_error.add(value, hn::Mul(hn::Mul(s, six.value), tensor_scale));
    four_error.add(value, hn::Mul(hn::Mul(f, four.value), tensor_scale));
    hn::Store(s, Tag(), out.elements[i]);
    hn::Store(f, Tag(), to_four[i]);
  }
  const auto better = errs_less(four_error, six_error);
  for (int64_t i = 0; i < kNvBlock; ++i) {
    const Vector chosen = hn::IfThenElse(better, hn::Load(Tag(), to_four[i]), hn::Load(Tag(), out.elements[i]));
    hn::Store(chosen, Tag(), out.elements[i]);
  }
  return better;
}

/// nv_encode for kWidth blocks; x[16][kTileBlocks] starts at their first lane.
inline void nv_encode_lanes(const float* x, float g, bool four_over_six, NvLanes& out) {
  const Vector tensor_scale = hn::Set(Tag(), g);
  auto number = hn::Zero(SignedTag()), largest = number;
  for (int64_t i = 0; i < kNvBlock; ++i) {
    const auto magnitude = magnitude_bits(hn::Load(Tag(), x + i * kTileBlocks));
    number = hn::Max(number, hn::IfThenZeroElse(is_nan(magnitude), magnitude));
    largest = hn::Max(largest, magnitude);
  }
  const auto amax_bits = hn::Min(number, hn::Set(SignedTag(), 0x7f7fffff));
  const Vector amax = hn::BitCast(Tag(), amax_bits);
  const NvScale six = nv_scale(amax, 6.0f, tensor_scale);
  out.code = six.code;
  out.scale = six.value;
  if (four_over_six) {
    const NvScale four = nv_scale(amax, 4.0f, tensor_scale);
    const auto better = nv_map_better(x, six, four, tensor_scale, out);
    out.code = hn::IfThenElse(hn::RebindMask(UnsignedTag(), better), four.code, out.code);
    out.scale = hn::IfThenElse(better, four.value, out.scale);
  } else {
    nv_map(x, six, out);
  }
  const auto zero = hn::Eq(amax_bits, hn::Zero(SignedTag()));
  out.code = hn::IfThenZeroElse(hn::RebindMask(UnsignedTag(), zero), out.code);
  out.scale = hn::IfThenZeroElse(hn::RebindMask(Tag(), zero), out.scale);
  const auto nan = is_nan(largest);
  if (hn::AllFalse(SignedTag(), nan)) return;
  const auto nan_lanes = hn::RebindMask(Tag(), nan);
  for (int64_t i = 0; i < kNvBlock; ++i)
    hn::Store(hn::IfThenZeroElse(nan_lanes, hn::Load(Tag(), out.elements[i])), Tag(), out.elements[i]);
  out.code = hn::IfThenElse(hn::RebindMask(UnsignedTag(), nan), hn::Set(UnsignedTag(), 0x7fu), out.code);
  const Vector quiet = hn::BitCast(Tag(), hn::Set(UnsignedTag(), 0x7fc00000u));
  out.scale = hn::IfThenElse(nan_lanes, quiet, out.scale);
}

}  // namespace motley::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
