// One vector of values in a small format: its codes, its rounded values. Included once per instruction set by
// kernels/cpu/quantize_row.cpp, after Highway; the scalar rules are in kernels/formats.h.
#if defined(MOTLEY_QUANTIZE_VECTOR) == defined(HWY_TARGET_TOGGLE)
#ifdef MOTLEY_QUANTIZE_VECTOR
#undef MOTLEY_QUANTIZE_VECTOR
#else
#define MOTLEY_QUANTIZE_VECTOR
#endif

#include "kernels/formats.h"

HWY_BEFORE_NAMESPACE();
namespace motley::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::CappedTag<float, 16>;
using UnsignedTag = hn::RebindToUnsigned<Tag>;
using SignedTag = hn::RebindToSigned<Tag>;
using Vector = hn::Vec<Tag>;
using Codes = hn::Vec<UnsignedTag>;  // one code a lane
constexpr int64_t kWidth = static_cast<int64_t>(hn::MaxLanes(Tag()));

/// Exponent bits, mantissa bits, largest code and code of NaN of a small format.
template <Format F>
struct Layout;
template <>
struct Layout<Format::e4m3> {
  static constexpr int kExponent = 4, kMantissa = 3, kLargest = 0x7e, kNan = 0x7f;
};
template <>
struct Layout<Format::e5m2> {
  static constexpr int kExponent = 5, kMantissa = 2, kLargest = 0x7b, kNan = 0x7e;
};
template <>
struct Layout<Format::e2m1> {
  static constexpr int kExponent = 2, kMantissa = 1, kLargest = 7, kNan = 7;
};

inline hn::Vec<SignedTag> magnitude_bits(Vector x) {
  return hn::And(hn::BitCast(SignedTag(), x), hn::Set(SignedTag(), 0x7fffffff));
}
inline auto is_nan(hn::Vec<SignedTag> magnitude) { return hn::Gt(magnitude, hn::Set(SignedTag(), 0x7f800000)); }

/// A NaN keeps its sign and loses its payload.
inline Vector plain_nan(Vector x) {
  const auto bits = hn::BitCast(UnsignedTag(), x);
  const auto quiet = hn::Or(hn::And(bits, hn::Set(UnsignedTag(), 0x80000000u)), hn::Set(UnsignedTag(), 0x7fc00000u));
  return hn::IfThenElse(hn::IsNaN(x), hn::BitCast(Tag(), quiet), x);
}

inline Codes bf16_codes(Vector x) {
  const auto bits = hn::BitCast(UnsignedTag(), x);
  const auto high = hn::ShiftRight<16>(bits);
  const auto odd = hn::And(high, hn::Set(UnsignedTag(), 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(UnsignedTag(), 0x7fffu)), odd));
  const auto nan = hn::RebindMask(UnsignedTag(), hn::IsNaN(x));
  return hn::IfThenElse(nan, hn::Or(high, hn::Set(UnsignedTag(), 0x40u)), rounded);
}

/// encode<F> of kernels/formats.h; not for fp32 and fp16.
template <Format F>
Codes codes_of(Vector x) {
  if constexpr (F == Format::bf16) {
    return bf16_codes(x);
  } else {
    using L = Layout<F>;
    constexpr int kBias = (1 << (L::kExponent - 1)) - 1, kShift = 23 - L::kMantissa;
    const SignedTag tag;
    const auto magnitude = magnitude_bits(x);
    const auto rounder = hn::Set(tag, (127 + 24 - kBias - L::kMantissa) << 23);
    const auto shifted = hn::Add(hn::BitCast(Tag(), magnitude), hn::BitCast(Tag(), rounder));
    const auto subnormal = hn::Sub(hn::BitCast(tag, shifted), rounder);
    const auto odd = hn::And(hn::ShiftRight<kShift>(magnitude), hn::Set(tag, 1));
    const auto rounded = hn::Add(hn::Add(magnitude, hn::Set(tag, (1 << (kShift - 1)) - 1)), odd);
    const auto normal = hn::Sub(hn::ShiftRight<kShift>(rounded), hn::Set(tag, (127 - kBias) << L::kMantissa));
    const auto small = hn::Lt(magnitude, hn::Set(tag, (128 - kBias) << 23));
    const auto finite = hn::Min(hn::IfThenElse(small, subnormal, normal), hn::Set(tag, L::kLargest));
    const auto nan = is_nan(magnitude);
    const auto sign_bits = hn::BitCast(UnsignedTag(), x);
    const auto code = hn::BitCast(UnsignedTag(), hn::IfThenElse(nan, hn::Set(tag, L::kNan), finite));
    if constexpr (F == Format::e2m1) {
      const auto sign = hn::And(hn::ShiftRight<28>(sign_bits), hn::Set(UnsignedTag(), 8u));
      return hn::Or(code, hn::IfThenZeroElse(hn::RebindMask(UnsignedTag(), nan), sign));
    } else {
      return hn::Or(code, hn::And(hn::ShiftRight<24>(sign_bits), hn::Set(UnsignedTag(), 0x80u)));
    }
  }
}

/// rounded<F> of kernels/formats.h.
template <Format F>
Vector rounded_to(Vector x) {
  if constexpr (F == Format::fp32) {
    return x;
  } else if constexpr (F == Format::bf16) {
    return hn::BitCast(Tag(), hn::ShiftLeft<16>(bf16_codes(x)));
  } else if constexpr (F == Format::fp16) {
    return hn::PromoteTo(Tag(), hn::DemoteTo(hn::Rebind<hwy::float16_t, Tag>(), plain_nan(x)));
  } else {
    using L = Layout<F>;
    constexpr int kSmallestNormal = (129 - (1 << (L::kExponent - 1))) << 23;
    const SignedTag tag;
    const auto magnitude = magnitude_bits(x);
    const auto limit = hn::BitCast(tag, hn::Set(Tag(), largest_value(F)));
    const auto clamped = hn::Min(magnitude, limit);
    const auto power = hn::Max(hn::And(clamped, hn::Set(tag, 0x7f800000)), hn::Set(tag, kSmallestNormal));
    const auto unit = hn::BitCast(Tag(), hn::Add(power, hn::Set(tag, (23 - L::kMantissa) << 23)));
    const auto near = hn::BitCast(tag, hn::Sub(hn::Add(hn::BitCast(Tag(), clamped), unit), unit));
    const auto nan = is_nan(magnitude);
    const auto sign = hn::AndNot(hn::Set(tag, 0x7fffffff), hn::BitCast(tag, x));
    if constexpr (F == Format::e2m1) return hn::BitCast(Tag(), hn::Or(hn::IfThenZeroElse(nan, sign), near));
    return hn::BitCast(Tag(), hn::Or(sign, hn::IfThenElse(nan, hn::Set(tag, 0x7fc00000), near)));
  }
}

/// Bytes that `count` codes take.
template <Format F>
constexpr int64_t code_bytes(int64_t count) {
  if constexpr (F == Format::e2m1) return (count + 1) / 2;
  return count * (F == Format::fp32 ? 4 : F == Format::bf16 || F == Format::fp16 ? 2 : 1);
}

/// Encodes a whole vector into code_bytes(kWidth) bytes.
template <Format F>
void store_codes(Vector x, uint8_t* out) {
  const hn::Rebind<uint8_t, Tag> byte_tag;
  const hn::Rebind<uint16_t, Tag> half_tag;
  if constexpr (F == Format::fp32) {
    hn::StoreU(hn::BitCast(hn::Repartition<uint8_t, Tag>(), x), hn::Repartition<uint8_t, Tag>(), out);
  } else if constexpr (F == Format::fp16) {
    const auto half = hn::DemoteTo(hn::Rebind<hwy::float16_t, Tag>(), plain_nan(x));
    const hn::Repartition<uint8_t, decltype(half_tag)> bytes;
    hn::StoreU(hn::BitCast(bytes, half), bytes, out);
  } else if constexpr (F == Format::bf16) {
    const hn::Repartition<uint8_t, decltype(half_tag)> bytes;
    hn::StoreU(hn::BitCast(bytes, hn::TruncateTo(half_tag, bf16_codes(x))), bytes, out);
  } else if constexpr (F == Format::e2m1) {
    const hn::Repartition<uint64_t, Tag> pair_tag;  // the odd column's code lies in the upper half
    const auto pairs = hn::BitCast(pair_tag, codes_of<F>(x));
    const hn::Rebind<uint8_t, decltype(pair_tag)> packed_tag;
    hn::StoreU(hn::TruncateTo(packed_tag, hn::Or(pairs, hn::ShiftRight<28>(pairs))), packed_tag, out);
  } else {
    hn::StoreU(hn::TruncateTo(byte_tag, codes_of<F>(x)), byte_tag, out);
  }
}

}  // namespace motley::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
