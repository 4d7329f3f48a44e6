// e4m3 codes as fp16, once per instruction set: included inside no namespace by the files that Highway compiles for
// each target, after highway.h.

#if defined(MOTLEY_E4M3_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MOTLEY_E4M3_INL_H
#undef MOTLEY_E4M3_INL_H
#else
#define MOTLEY_E4M3_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace motley::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

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

}  // namespace motley::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
