#include "kernels/cpu/kv_decode.h"

#include "kernels/cpu/elements.h"
#include "kernels/cpu/highway_baseline.h"
#include "kernels/kv_format.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/kv_decode.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

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
/// The wider half of binary16 is e5m2; e4m3 has its exponent in other units, and NaN where binary16 has a number.
template <Format F>
inline Vector small_at(const uint8_t* in) {
  const HalfBits half;
  const auto code = hn::PromoteTo(half, hn::LoadU(hn::Rebind<uint8_t, Tag>(), in));
  if constexpr (F == Format::e5m2) return from_half(hn::ShiftLeft<8>(code));
  const auto magnitude = hn::And(code, hn::Set(half, 0x7f));
  const auto sign = hn::ShiftLeft<8>(hn::And(code, hn::Set(half, 0x80)));
  const auto nan = hn::IfThenElseZero(hn::Eq(magnitude, hn::Set(half, 0x7f)), hn::Set(half, 0x7e00));
  const auto bits = hn::Or(hn::Or(sign, hn::ShiftLeft<7>(magnitude)), nan);
  return hn::Mul(from_half(bits), hn::Set(Tag(), 256.0f));
}

template <Format F>
void decode_rows(const KvDecode& args) {
  using Code = typename KvCode<F>::type;
  const auto scale = hn::Set(Tag(), args.scale);
  for (int64_t i = 0; i < args.rows; ++i) {
    const Code* in = static_cast<const Code*>(args.codes) + i * args.stride;
    float* out = args.out + i * args.out_stride;
    int64_t d = 0;
    for (; d + kWidth <= args.count; d += kWidth) {
      Vector value;
      if constexpr (sizeof(Code) == 1)
        value = small_at<F>(in + d);
      else
        value = codes_at(in + d);
      hn::StoreU(hn::Mul(value, scale), Tag(), out + d);
    }
    for (; d < args.count; ++d) out[d] = decode_kv<F, float>(in[d], args.scale);
  }
}

void decode_rows_of(const KvDecode& args) {
  switch (args.format) {
    case Format::bf16:
      return decode_rows<Format::bf16>(args);
    case Format::fp16:
      return decode_rows<Format::fp16>(args);
    case Format::e4m3:
      return decode_rows<Format::e4m3>(args);
    case Format::e5m2:
      return decode_rows<Format::e5m2>(args);
    default:
      return decode_rows<Format::fp32>(args);
  }
}

}  // namespace motley::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace motley::kernels::cpu {

HWY_EXPORT(decode_rows_of);

namespace {
template <class T>
void round_rows(const KvDecode& args) {
  for (int64_t i = 0; i < args.rows; ++i) {
    float* row = args.out + i * args.out_stride;
    for (int64_t d = 0; d < args.count; ++d) row[d] = load(store<T>(row[d]));
  }
}
}  // namespace

void decode_kv_rows(const KvDecode& args) {
  HWY_DYNAMIC_DISPATCH(decode_rows_of)(args);
  const bool small = args.format == Format::e4m3 || args.format == Format::e5m2;
  const bool same = (args.format == Format::bf16 && args.rounding == DType::bf16) ||
                    (args.format == Format::fp16 && args.rounding == DType::f16);
  if (args.scale == 1.0f && (small || same)) return;  // representable already
  if (args.rounding == DType::bf16) round_rows<bf16>(args);
  if (args.rounding == DType::f16) round_rows<fp16>(args);
}

}  // namespace motley::kernels::cpu
#endif
