// Decoding of packed panels in registers, once per instruction set: included inside no namespace by the files that
// Highway compiles for each target, after highway.h.
//
// A codec decodes steps of kStep consecutive k. `load` reads step `step` of a panel (and its scales from `Scales`),
// `take` gives vector v of k = step * kStep + j and must be called with j ascending, each j and v once. A step takes
// kStepBytes of codes.

#if defined(MOTLEY_PACKED_PANEL_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MOTLEY_PACKED_PANEL_INL_H
#undef MOTLEY_PACKED_PANEL_INL_H
#else
#define MOTLEY_PACKED_PANEL_INL_H
#endif

#include "kernels/cpu/packed_panel.h"

HWY_BEFORE_NAMESPACE();
namespace motley::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using PanelTag = hn::CappedTag<float, kPanelRows>;
using PanelVector = hn::Vec<PanelTag>;
constexpr int kPanelLanes = static_cast<int>(hn::MaxLanes(PanelTag()));
constexpr int kPanelVectors = static_cast<int>(kPanelRows) / kPanelLanes;

/// The block scales of sixteen rows.
struct BlockScales {
  PanelVector v[kPanelVectors];
};

/// Sixteen-bit elements of twice kPanelLanes 8-bit codes, and their two halves as float.
using HalfTag = hn::Repartition<uint16_t, PanelTag>;
HWY_INLINE void promote_halves(hn::Vec<HalfTag> halves, PanelVector* out) {
  const hn::Repartition<hwy::float16_t, PanelTag> d16;
  const hn::Rebind<hwy::float16_t, PanelTag> lower;
  const auto values = hn::BitCast(d16, halves);
  out[0] = hn::PromoteTo(PanelTag(), hn::LowerHalf(lower, values));
  out[1] = hn::PromoteTo(PanelTag(), hn::UpperHalf(lower, values));
}

/// e4m3 codes as fp16 of 1/256 of their value: both formats keep their subnormals, so this is exact but for NaN.
template <class D16>
HWY_INLINE hn::Vec<D16> e4m3_halves(D16 d16, const uint8_t* codes) {
  const hn::RebindToSigned<D16> wide;
  const hn::Rebind<int8_t, decltype(wide)> narrow;
  const auto extended = hn::PromoteTo(wide, hn::LoadU(narrow, reinterpret_cast<const int8_t*>(codes)));
  return hn::And(hn::BitCast(d16, hn::ShiftLeft<7>(extended)), hn::Set(d16, uint16_t{0xbf80}));
}
/// 480 / 256, which is what NaN would be, made NaN.
template <class D16>
HWY_INLINE hn::Vec<D16> with_nan(D16 d16, hn::Vec<D16> halves) {
  const auto nan = hn::Set(d16, uint16_t{0x3f80});
  return hn::IfThenElse(hn::Eq(hn::And(halves, nan), nan), hn::Or(halves, hn::Set(d16, uint16_t{0x7e00})), halves);
}

/// Scales times kFactor.
template <Scaling S, int kFactor, bool Exact>
HWY_INLINE BlockScales load_scales(const uint8_t* codes) {
  BlockScales scales;
#pragma GCC unroll 4
  for (int v = 0; v < kPanelVectors; ++v) {
    const uint8_t* from = codes + v * kPanelLanes;
    if constexpr (S == Scaling::nv16) {
      const hn::Rebind<uint16_t, PanelTag> d16;
      auto halves = e4m3_halves(d16, from);
      if constexpr (Exact) halves = with_nan(d16, halves);
      scales.v[v] = hn::PromoteTo(PanelTag(), hn::BitCast(hn::Rebind<hwy::float16_t, PanelTag>(), halves));
      if constexpr (kFactor != 1) scales.v[v] = hn::Mul(scales.v[v], hn::Set(PanelTag(), kFactor));
    } else {
      const hn::RebindToUnsigned<PanelTag> d32;
      const auto code = hn::PromoteTo(d32, hn::LoadU(hn::Rebind<uint8_t, PanelTag>(), from));
      auto bits = hn::ShiftLeft<23>(code);
      bits = hn::IfThenElse(hn::Eq(code, hn::Zero(d32)), hn::Set(d32, 0x00400000u), bits);
      bits = hn::IfThenElse(hn::Eq(code, hn::Set(d32, 0xffu)), hn::Set(d32, 0x7fc00000u), bits);
      scales.v[v] = hn::BitCast(PanelTag(), bits);
      if constexpr (kFactor != 1) scales.v[v] = hn::Mul(scales.v[v], hn::Set(PanelTag(), kFactor));
    }
  }
  return scales;
}

/// What all codecs share: S is none where values are codes alone. Values are 1 / kInputFactor of decode_codes': the
/// product's inputs are multiplied by it.
template <Scaling S, int Factor, bool Exact = true>
struct CodecBase {
  static constexpr Scaling kScaling = S;
  static constexpr int64_t kBlock = block_length(S);  // k per block scale, a multiple of kStep; 0: no scales
  static constexpr int kInputFactor = 1;
  static BlockScales scales(const uint8_t* block_codes, int64_t block) {
    if constexpr (S == Scaling::none)
      return {};
    else
      return load_scales<S, Factor, Exact>(block_codes + block * kPanelRows);
  }
};

struct Fp32Codec : CodecBase<Scaling::none, 1> {
  static constexpr int kStep = 1, kStepBytes = 4 * kPanelRows;
  struct Step {
    const float* from;
  };
  static HWY_INLINE Step load(const uint8_t* codes, int64_t step, const BlockScales&) {
    return {reinterpret_cast<const float*>(codes) + step * kPanelRows};
  }
  static HWY_INLINE PanelVector take(Step& step, int, int v) {
    return hn::LoadU(PanelTag(), step.from + v * kPanelLanes);
  }
};

template <Format F>
struct HalfCodec : CodecBase<Scaling::none, 1> {
  static constexpr int kStep = 1, kStepBytes = 2 * kPanelRows;
  struct Step {
    const uint16_t* from;
  };
  static HWY_INLINE Step load(const uint8_t* codes, int64_t step, const BlockScales&) {
    return {reinterpret_cast<const uint16_t*>(codes) + step * kPanelRows};
  }
  static HWY_INLINE PanelVector take(Step& step, int, int v) {
    const hn::Rebind<uint16_t, PanelTag> d16;
    const auto code = hn::LoadU(d16, step.from + v * kPanelLanes);
    if constexpr (F == Format::fp16)
      return hn::PromoteTo(PanelTag(), hn::BitCast(hn::Rebind<hwy::float16_t, PanelTag>(), code));
    else
      return hn::BitCast(PanelTag(), hn::ShiftLeft<16>(hn::PromoteTo(hn::RebindToUnsigned<PanelTag>(), code)));
  }
};

/// Exact: NaN codes and all block scales. Otherwise e4m3 leaves its factor 256 to the block scale or to the inputs.
template <Format F, Scaling S, bool Exact>
struct ByteCodec : CodecBase<S, F == Format::e4m3 && !Exact ? 256 : 1> {
  static constexpr bool kLeavesFactor = F == Format::e4m3 && !Exact;
  static constexpr int kInputFactor = kLeavesFactor && S == Scaling::none ? 256 : 1;
  static constexpr int kPair = 2 * kPanelLanes;  // codes in one load
  static constexpr int kStep = kPair > kPanelRows ? kPair / static_cast<int>(kPanelRows) : 1;
  static constexpr int kStepBytes = kStep * static_cast<int>(kPanelRows), kCount = kStep * kPanelVectors;
  struct Step {
    PanelVector v[kCount];
    BlockScales scales;
  };
  static HWY_INLINE Step load(const uint8_t* codes, int64_t step, const BlockScales& scales) {
    const HalfTag d16;
    const uint8_t* from = codes + step * kStep * kPanelRows;
    Step out;
    out.scales = scales;
#pragma GCC unroll 4
    for (int i = 0; i < kCount; i += 2) {
      const uint8_t* pair = from + i * kPanelLanes;
      if constexpr (F == Format::e5m2) {
        const hn::Rebind<uint8_t, HalfTag> narrow;
        promote_halves(hn::ShiftLeft<8>(hn::PromoteTo(d16, hn::LoadU(narrow, pair))), out.v + i);
      } else {
        auto halves = e4m3_halves(d16, pair);
        if constexpr (Exact) halves = with_nan(d16, halves);
        promote_halves(halves, out.v + i);
      }
    }
    return out;
  }
  static HWY_INLINE PanelVector take(Step& step, int j, int v) {
    PanelVector value = step.v[j * kPanelVectors + v];
    if constexpr (F == Format::e4m3 && Exact) value = hn::Mul(value, hn::Set(PanelTag(), 256.0f));
    if constexpr (S != Scaling::none) value = hn::Mul(value, step.scales.v[v]);
    return value;
  }
};

/// The float of the lowest four bits of every lane, times kFactor.
template <int kFactor>
HWY_INLINE PanelVector e2m1_values(hn::Vec<hn::RebindToUnsigned<PanelTag>> words) {
  constexpr float f = kFactor;
  const PanelTag tag;
  const hn::RebindToUnsigned<PanelTag> d32;
  if constexpr (kPanelLanes == 16) {
    alignas(64) static constexpr float kTable[16] = {0.0f,  0.5f * f,  f,  1.5f * f,  2 * f,  3 * f,  4 * f,  6 * f,
                                                     -0.0f, -0.5f * f, -f, -1.5f * f, -2 * f, -3 * f, -4 * f, -6 * f};
    // x86 looks at the lowest four bits of an index only; debug builds of Highway check all of them.
    const auto index = HWY_ARCH_X86 && !HWY_IS_DEBUG_BUILD ? words : hn::And(words, hn::Set(d32, 15u));
    return hn::TableLookupLanes(hn::Load(tag, kTable),
                                hn::IndicesFromVec(tag, hn::BitCast(hn::RebindToSigned<PanelTag>(), index)));
  } else if constexpr (kPanelLanes == 8) {
    alignas(64) static constexpr float kTable[8] = {0.0f, 0.5f * f, f, 1.5f * f, 2 * f, 3 * f, 4 * f, 6 * f};
    const auto index = HWY_ARCH_X86 && !HWY_IS_DEBUG_BUILD ? words : hn::And(words, hn::Set(d32, 7u));
    const auto magnitude = hn::TableLookupLanes(
        hn::Load(tag, kTable), hn::IndicesFromVec(tag, hn::BitCast(hn::RebindToSigned<PanelTag>(), index)));
    const auto sign = hn::And(hn::ShiftLeft<28>(words), hn::Set(d32, 0x80000000u));
    return hn::Or(magnitude, hn::BitCast(tag, sign));
  } else {
    // As the exponent and the mantissa of a float they lack a factor 2^126, code 1 being a subnormal float.
    const auto magnitude = hn::ShiftLeft<22>(hn::And(words, hn::Set(d32, 7u)));
    const auto sign = hn::And(hn::ShiftLeft<28>(words), hn::Set(d32, 0x80000000u));
    return hn::Mul(hn::BitCast(tag, hn::Or(magnitude, sign)), hn::Set(tag, f * 0x1p126f));
  }
}

/// With nv16 the factor 256 of the scales' decoding is in the table. Exact: scales that are NaN too.
template <Scaling S, bool Exact>
struct NibbleCodec : CodecBase<S, 1, Exact> {
  static constexpr int kStep = 8, kStepBytes = 4 * kPanelRows;
  static constexpr int kTableFactor = S == Scaling::nv16 ? 256 : 1;
  struct Step {
    hn::Vec<hn::RebindToUnsigned<PanelTag>> words[kPanelVectors];
    BlockScales scales;
  };
  static HWY_INLINE Step load(const uint8_t* codes, int64_t step, const BlockScales& scales) {
    const hn::RebindToUnsigned<PanelTag> d32;
    Step out;
    out.scales = scales;
#pragma GCC unroll 4
    for (int v = 0; v < kPanelVectors; ++v)
      out.words[v] = hn::LoadU(d32, reinterpret_cast<const uint32_t*>(codes) + step * kPanelRows + v * kPanelLanes);
    return out;
  }
  static HWY_INLINE PanelVector take(Step& step, int, int v) {
    PanelVector value = e2m1_values<kTableFactor>(step.words[v]);
    step.words[v] = hn::ShiftRight<4>(step.words[v]);
    if constexpr (S != Scaling::none) value = hn::Mul(value, step.scales.v[v]);
    return value;
  }
};

/// Calls body.operator()<Codec>() with the codec of the matrix; `exact` forbids an input factor.
template <class Body>
HWY_INLINE void visit_codec(const PackedMatrix& b, bool exact, Body&& body) {
  const bool mx = b.scaling == Scaling::mx32;
  exact = exact || b.rare;
  switch (b.format) {
    case Format::fp32:
      return body.template operator()<Fp32Codec>();
    case Format::bf16:
      return body.template operator()<HalfCodec<Format::bf16>>();
    case Format::fp16:
      return body.template operator()<HalfCodec<Format::fp16>>();
    case Format::e4m3:
      if (mx && !exact) return body.template operator()<ByteCodec<Format::e4m3, Scaling::mx32, false>>();
      if (mx) return body.template operator()<ByteCodec<Format::e4m3, Scaling::mx32, true>>();
      if (!exact) return body.template operator()<ByteCodec<Format::e4m3, Scaling::none, false>>();
      return body.template operator()<ByteCodec<Format::e4m3, Scaling::none, true>>();
    case Format::e5m2:
      if (mx) return body.template operator()<ByteCodec<Format::e5m2, Scaling::mx32, true>>();
      return body.template operator()<ByteCodec<Format::e5m2, Scaling::none, true>>();
    default:
      if (mx) return body.template operator()<NibbleCodec<Scaling::mx32, true>>();
      if (b.scaling == Scaling::none) return body.template operator()<NibbleCodec<Scaling::none, true>>();
      if (!exact) return body.template operator()<NibbleCodec<Scaling::nv16, false>>();
      return body.template operator()<NibbleCodec<Scaling::nv16, true>>();
  }
}

}  // namespace motley::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
