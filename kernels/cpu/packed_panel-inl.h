// Decoding of packed panels in registers, once per instruction set: included inside no namespace by the files that
// Highway compiles for each target, after highway.h.
//
// A codec decodes steps of kStep consecutive k. `load` reads step `step` of a panel, whose scales must outlive it;
// `take` gives vector v of k = step * kStep + j and must be called with j ascending, each j and v once. A step takes
// kStepBytes of codes.

#if defined(MOTLEY_PACKED_PANEL_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MOTLEY_PACKED_PANEL_INL_H
#undef MOTLEY_PACKED_PANEL_INL_H
#else
#define MOTLEY_PACKED_PANEL_INL_H
#endif

#include "kernels/cpu/e4m3-inl.h"
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

/// The float of fp16 bits.
HWY_INLINE PanelVector from_half(const uint16_t* halves) {
  const hn::Rebind<hwy::float16_t, PanelTag> d16;
  return hn::PromoteTo(PanelTag(), hn::Load(d16, reinterpret_cast<const hwy::float16_t*>(halves)));
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
  static HWY_INLINE void load(const uint8_t* codes, int64_t step, const BlockScales&, Step& out) {
    out.from = reinterpret_cast<const float*>(codes) + step * kPanelRows;
  }
  static HWY_INLINE PanelVector take(Step& step, int, int v) {
    return hn::LoadU(PanelTag(), step.from + v * kPanelLanes);
  }
};

template <Format F>
struct HalfCodec : CodecBase<Scaling::none, 1> {
  static constexpr int kStep = 2, kStepBytes = kStep * 2 * static_cast<int>(kPanelRows);  // a cache line
  struct Step {
    const uint16_t* from;
  };
  static HWY_INLINE void load(const uint8_t* codes, int64_t step, const BlockScales&, Step& out) {
    out.from = reinterpret_cast<const uint16_t*>(codes) + step * kStep * kPanelRows;
  }
  static HWY_INLINE PanelVector take(Step& step, int j, int v) {
    const uint16_t* from = step.from + j * kPanelRows + v * kPanelLanes;
    if constexpr (F == Format::fp16) return from_half(from);
    const auto code = hn::LoadU(hn::Rebind<uint16_t, PanelTag>(), from);
    return hn::BitCast(PanelTag(), hn::ShiftLeft<16>(hn::PromoteTo(hn::RebindToUnsigned<PanelTag>(), code)));
  }
};

/// Exact: NaN codes and all block scales. Otherwise e4m3 leaves its factor 256 to the block scale or to the inputs.
/// Codes become fp16 two to a word; the conversion to float then reads memory, which costs x86 half of what a
/// conversion between registers does.
template <Format F, Scaling S, bool Exact>
struct ByteCodec : CodecBase<S, F == Format::e4m3 && !Exact ? 256 : 1> {
  static constexpr bool kLeavesFactor = F == Format::e4m3 && !Exact;
  static constexpr int kInputFactor = kLeavesFactor && S == Scaling::none ? 256 : 1;
  static constexpr int kStep = 4, kStepBytes = kStep * static_cast<int>(kPanelRows), kWords = kStepBytes / 2;
  struct Step {
    alignas(64) uint16_t halves[kStep * kPanelRows];  // [k][16]
    const BlockScales* scales;
  };
  using WordTag = hn::Repartition<uint16_t, PanelTag>;
  using Words = hn::Vec<WordTag>;
  /// The fp16 bits, for e4m3 of 1/256 of the value, of the codes in the high bytes.
  static HWY_INLINE Words high_halves(Words words) {
    const WordTag d16;
    if constexpr (F == Format::e5m2) return hn::And(words, hn::Set(d16, uint16_t{0xff00}));
    const auto extended = hn::ShiftRight<1>(hn::BitCast(hn::RebindToSigned<WordTag>(), words));
    const Words halves = hn::And(hn::BitCast(d16, extended), hn::Set(d16, uint16_t{0xbf80}));
    return Exact ? with_nan(d16, halves) : halves;
  }
  static HWY_INLINE void load(const uint8_t* codes, int64_t step, const BlockScales& scales, Step& out) {
    const WordTag d16;
    constexpr int kLanes = static_cast<int>(hn::MaxLanes(d16));
    const auto* from = reinterpret_cast<const uint16_t*>(codes + step * kStepBytes);
    if constexpr (S != Scaling::none) out.scales = &scales;
#pragma GCC unroll 4
    for (int i = 0; i < kWords; i += kLanes) {
      const Words words = hn::LoadU(d16, from + i);
      hn::Store(high_halves(hn::ShiftLeft<8>(words)), d16, out.halves + i);
      hn::Store(high_halves(words), d16, out.halves + kWords + i);
    }
    asm volatile("" : "+m"(out.halves));  // or compilers take the halves from the registers after all
  }
  static HWY_INLINE PanelVector take(Step& step, int j, int v) {
    PanelVector value = from_half(step.halves + j * kPanelRows + v * kPanelLanes);
    if constexpr (F == Format::e4m3 && Exact) value = hn::Mul(value, hn::Set(PanelTag(), 256.0f));
    if constexpr (S != Scaling::none) value = hn::Mul(value, step.scales->v[v]);
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
    const BlockScales* scales;
  };
  static HWY_INLINE void load(const uint8_t* codes, int64_t step, const BlockScales& scales, Step& out) {
    const hn::RebindToUnsigned<PanelTag> d32;
    out.scales = &scales;
#pragma GCC unroll 4
    for (int v = 0; v < kPanelVectors; ++v)
      out.words[v] = hn::LoadU(d32, reinterpret_cast<const uint32_t*>(codes) + step * kPanelRows + v * kPanelLanes);
  }
  static HWY_INLINE PanelVector take(Step& step, int, int v) {
    PanelVector value = e2m1_values<kTableFactor>(step.words[v]);
    step.words[v] = hn::ShiftRight<4>(step.words[v]);
    if constexpr (S != Scaling::none) value = hn::Mul(value, step.scales->v[v]);
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
