// Rows of float in vectors of up to sixteen lanes, and the exponential of kernels/math.h on them, once per instruction
// set: included inside no namespace by the files that Highway compiles for each target, after highway.h. Element i of
// a row belongs to virtual lane i mod 16 (kernels/cpu/lanes.h) whatever the width of a vector.

#if defined(MOTLEY_VECTOR_MATH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MOTLEY_VECTOR_MATH_INL_H
#undef MOTLEY_VECTOR_MATH_INL_H
#else
#define MOTLEY_VECTOR_MATH_INL_H
#endif

#include <algorithm>

#include "kernels/cpu/lanes.h"

HWY_BEFORE_NAMESPACE();
namespace motley::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using RowTag = hn::CappedTag<float, kLanes>;
using RowVector = hn::Vec<RowTag>;
constexpr int64_t kRowWidth = static_cast<int64_t>(hn::MaxLanes(RowTag()));
constexpr int64_t kRowParts = kLanes / kRowWidth;

/// The bits of exponential(float) for x <= 89 and NaN: the same operations on every lane. Garbage above.
HWY_INLINE RowVector exponential_below(RowVector x) {
  const RowTag tag;
  const hn::RebindToSigned<RowTag> int_tag;
  const auto set = [tag](float value) { return hn::Set(tag, value); };
  const auto vanishes = hn::Lt(x, set(-104.0f));
  const RowVector clamped = hn::IfThenElse(vanishes, set(-104.0f), x);
  const RowVector shifted = hn::MulAdd(clamped, set(0x1.715476p+0f), set(0x1.8p23f));
  const RowVector n = hn::Sub(shifted, set(0x1.8p23f));
  const RowVector r = hn::MulAdd(n, set(-0x1.7f7d1cp-20f), hn::MulAdd(n, set(-0x1.62e4p-1f), clamped));
  RowVector p = hn::MulAdd(set(1.9875691500e-4f), r, set(1.3981999507e-3f));
  p = hn::MulAdd(p, r, set(8.3334519073e-3f));
  p = hn::MulAdd(p, r, set(4.1665795894e-2f));
  p = hn::MulAdd(p, r, set(1.6666665459e-1f));
  p = hn::MulAdd(p, r, set(5.0000001201e-1f));
  p = hn::IfThenZeroElse(vanishes, hn::Add(hn::MulAdd(hn::Mul(p, r), r, r), set(1.0f)));
  const auto exponent = hn::Sub(hn::BitCast(int_tag, shifted), hn::Set(int_tag, 0x4b400000));
  const auto half = hn::ShiftRight<1>(exponent), bias = hn::Set(int_tag, 127);
  const RowVector first = hn::BitCast(tag, hn::ShiftLeft<23>(hn::Add(half, bias)));
  const RowVector second = hn::BitCast(tag, hn::ShiftLeft<23>(hn::Add(hn::Sub(exponent, half), bias)));
  return hn::Mul(hn::Mul(p, first), second);
}
/// Of any x.
HWY_INLINE RowVector exponential_of(RowVector x) {
  const RowVector most = hn::Set(RowTag(), 89.0f);
  return exponential_below(hn::IfThenElse(hn::Gt(x, most), most, x));
}

/// Calls body(index, values from there, part) over the whole blocks of sixteen, and over what is left with lanes
/// beyond the end set to `fill`.
template <class Body>
HWY_INLINE void for_each_row_vector(const float* values, int64_t count, float fill, Body body) {
  const RowTag tag;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
#pragma GCC unroll 4
    for (int64_t part = 0; part < kRowParts; ++part)
      body(i + part * kRowWidth, hn::LoadU(tag, values + i + part * kRowWidth), part);
  }
  if (i == count) return;
  float last[kLanes];
  std::fill(std::copy(values + i, values + count, last), last + kLanes, fill);
  for (int64_t part = 0; part < kRowParts; ++part)
    body(i + part * kRowWidth, hn::LoadU(tag, last + part * kRowWidth), part);
}

/// The vector that belongs to index i of a row, as far as the row goes.
HWY_INLINE void store_values(RowVector vector, float* values, int64_t i, int64_t count) {
  if (i + kRowWidth <= count) return hn::StoreU(vector, RowTag(), values + i);
  float lanes[kRowWidth];
  hn::StoreU(vector, RowTag(), lanes);
  for (int64_t l = 0; i + l < count; ++l) values[i + l] = lanes[l];
}

/// Sixteen float lanes, each the sum of what was added to it in order.
struct LaneSums {
  RowVector sums[kRowParts];
  HWY_INLINE explicit LaneSums(float start = 0.0f) {
    for (RowVector& sum : sums) sum = hn::Set(RowTag(), start);
  }
  HWY_INLINE void store(float* lanes) const {
    for (int64_t part = 0; part < kRowParts; ++part) hn::StoreU(sums[part], RowTag(), lanes + part * kRowWidth);
  }
  HWY_INLINE float total() const {
    float lanes[kLanes];
    store(lanes);
    return add_lanes(lanes);
  }
};

}  // namespace motley::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
