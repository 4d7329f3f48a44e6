#include "kernels/cpu/kv_decode.h"

#include <cmath>

#include "kernels/cpu/elements.h"
#include "kernels/cpu/highway_baseline.h"
#include "kernels/kv_format.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/kv_decode.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/e4m3-inl.h"

HWY_BEFORE_NAMESPACE();
namespace motley::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::CappedTag<float, 16>;
using Vector = hn::Vec<Tag>;
using HalfBits = hn::Rebind<uint16_t, Tag>;
constexpr int64_t kWidth = static_cast<int64_t>(hn::MaxLanes(Tag()));

/// binary16, any value.
inline Vector from_half(hn::Vec<HalfBits> bits) {
  return hn::PromoteTo(Tag(), hn::BitCast(hn::Rebind<hwy::float16_t, Tag>(), bits));
}
inline Vector codes_at(const float* in) { return hn::LoadU(Tag(), in); }
inline Vector codes_at(const bf16* in) {
  const auto bits = hn::LoadU(HalfBits(), reinterpret_cast<const uint16_t*>(in));
  return hn::BitCast(Tag(), hn::ShiftLeft<16>(hn::PromoteTo(hn::RebindToUnsigned<Tag>(), bits)));
}
inline Vector codes_at(const fp16* in) {
  return from_half(hn::LoadU(HalfBits(), reinterpret_cast<const uint16_t*>(in)));
}
inline Vector codes_at(const uint8_t* in) {
  return from_half(hn::ShiftLeft<8>(hn::PromoteTo(HalfBits(), hn::LoadU(hn::Rebind<uint8_t, Tag>(), in))));
}

/// Rounded to bf16, as store<bf16> does (kernels/elements.h).
inline Vector bf16_rounded(Vector x) {
  const hn::RebindToUnsigned<Tag> bits_tag;
  const auto bits = hn::BitCast(bits_tag, x), top = hn::Set(bits_tag, 0xffff0000u);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(bits_tag, 1u));
  const auto rounded = hn::Add(hn::Add(bits, hn::Set(bits_tag, 0x7fffu)), odd);
  const auto quiet = hn::Or(bits, hn::Set(bits_tag, 0x400000u));
  const auto is_nan = hn::RebindMask(bits_tag, hn::IsNaN(x));
  return hn::BitCast(Tag(), hn::And(hn::IfThenElse(is_nan, quiet, rounded), top));
}

/// One row as far as whole vectors go. Returns where it stopped.
template <bool kRound, class Code>
int64_t decode_row(const Code* in, int64_t count, float scale, float* out) {
  const auto factor = hn::Set(Tag(), scale);
  int64_t d = 0;
  for (; d + kWidth <= count; d += kWidth) {
    const Vector value = hn::Mul(codes_at(in + d), factor);
    hn::StoreU(kRound ? bf16_rounded(value) : value, Tag(), out + d);
  }
  return d;
}
/// The same of e4m3. The factor 256 that its halves lack is exact in `scale`.
template <bool kRound>
int64_t decode_e4m3_row(const uint8_t* in, int64_t count, float scale, float* out) {
  const hn::Repartition<uint16_t, Tag> d16;
  const HalfBits half;
  const auto factor = hn::Set(Tag(), 256.0f * scale);
  const auto put = [&](hn::Vec<HalfBits> halves, float* to) {
    const Vector value = hn::Mul(from_half(halves), factor);
    hn::StoreU(kRound ? bf16_rounded(value) : value, Tag(), to);
  };
  int64_t d = 0;
  for (; d + 2 * kWidth <= count; d += 2 * kWidth) {
    const auto halves = with_nan(d16, e4m3_halves(d16, in + d));
    put(hn::LowerHalf(half, halves), out + d);
    put(hn::UpperHalf(half, halves), out + d + kWidth);
  }
  for (; d + kWidth <= count; d += kWidth) put(with_nan(half, e4m3_halves(half, in + d)), out + d);
  return d;
}

template <Format F, bool kRound>
void decode_rows(const KvDecode& args) {
  using Code = typename KvCode<F>::type;
  const bool quick = std::fabs(256.0f * args.scale) < INFINITY;
  for (int64_t i = 0; i < args.rows; ++i) {
    const Code* in = static_cast<const Code*>(args.codes) + i * args.stride;
    float* out = args.out + i * args.out_stride;
    int64_t d = 0;
    if constexpr (F == Format::e4m3)
      d = quick ? decode_e4m3_row<kRound>(in, args.count, args.scale, out) : 0;
    else
      d = decode_row<kRound>(in, args.count, args.scale, out);
    for (; d < args.count; ++d) {
      const float value = decode_kv<F, float>(in[d], args.scale);
      out[d] = kRound ? load(store<bf16>(value)) : value;
    }
  }
}

template <bool kRound>
void decode_rows_of(const KvDecode& args) {
  switch (args.format) {
    case Format::bf16:
      return decode_rows<Format::bf16, kRound>(args);
    case Format::fp16:
      return decode_rows<Format::fp16, kRound>(args);
    case Format::e4m3:
      return decode_rows<Format::e4m3, kRound>(args);
    case Format::e5m2:
      return decode_rows<Format::e5m2, kRound>(args);
    default:
      return decode_rows<Format::fp32, kRound>(args);
  }
}
void decode_rows_alone(const KvDecode& args) { decode_rows_of<false>(args); }
void decode_rows_rounded(const KvDecode& args) { decode_rows_of<true>(args); }

}  // namespace motley::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace motley::kernels::cpu {

HWY_EXPORT(decode_rows_alone);
HWY_EXPORT(decode_rows_rounded);

void decode_kv_rows(const KvDecode& args) {
  const bool small = args.format == Format::e4m3 || args.format == Format::e5m2;
  const bool same = (args.format == Format::bf16 && args.rounding == DType::bf16) ||
                    (args.format == Format::fp16 && args.rounding == DType::f16);
  const bool exact = args.scale == 1.0f && (small || same);  // representable already
  if (args.rounding == DType::bf16 && !exact) return HWY_DYNAMIC_DISPATCH(decode_rows_rounded)(args);
  HWY_DYNAMIC_DISPATCH(decode_rows_alone)(args);
  if (args.rounding != DType::f16 || exact) return;
  for (int64_t i = 0; i < args.rows; ++i) {
    float* row = args.out + i * args.out_stride;
    for (int64_t d = 0; d < args.count; ++d) row[d] = load(store<fp16>(row[d]));
  }
}

}  // namespace motley::kernels::cpu
#endif
