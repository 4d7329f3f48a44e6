#include "kernels/cpu/sampling_inner.h"

#include <algorithm>
#include <limits>

#include "kernels/cpu/highway_baseline.h"
#include "kernels/cpu/lanes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/sampling_inner.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace motley::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::CappedTag<float, kLanes>;
using Vector = hn::Vec<Tag>;
using HalfTag = hn::Half<Tag>;
using DoubleTag = hn::Rebind<double, HalfTag>;
using DoubleVector = hn::Vec<DoubleTag>;
using IntTag = hn::RebindToSigned<Tag>;
constexpr int64_t kWidth = static_cast<int64_t>(hn::MaxLanes(Tag()));
constexpr int64_t kParts = kLanes / kWidth;
constexpr float kNothing = -std::numeric_limits<float>::infinity();

/// Calls body(first index, vector of 16 / kParts lanes, part) over values[0..count); lanes beyond the end are `fill`.
template <class Body>
HWY_INLINE void for_each_vector(const float* values, int64_t count, float fill, Body body) {
  const Tag tag;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
#pragma GCC unroll 4
    for (int64_t part = 0; part < kParts; ++part)
      body(i + part * kWidth, hn::LoadU(tag, values + i + part * kWidth), part);
  }
  if (i == count) return;
  float last[kLanes];
  std::fill(std::copy(values + i, values + count, last), last + kLanes, fill);
  for (int64_t part = 0; part < kParts; ++part) body(i + part * kWidth, hn::LoadU(tag, last + part * kWidth), part);
}

/// The first count - i lanes of the vector that belongs to index i.
HWY_INLINE void store_lanes(Vector vector, float* out, int64_t i, int64_t count) {
  if (i + kWidth <= count) return hn::StoreU(vector, Tag(), out + i);
  float lanes[kWidth];
  hn::StoreU(vector, Tag(), lanes);
  for (int64_t l = 0; i + l < count; ++l) out[i + l] = lanes[l];
}

float scale_row(const float* logits, int64_t count, float divisor, float* scaled) {
  const Tag tag;
  const Vector by = hn::Set(tag, divisor);
  Vector largest = hn::Set(tag, kNothing);
  auto no_number = hn::IsNaN(largest);
  for_each_vector(logits, count, kNothing, [&](int64_t i, Vector x, int64_t) {
    const Vector z = hn::Div(x, by);
    no_number = hn::Or(no_number, hn::IsNaN(z));
    largest = hn::IfThenElse(hn::Gt(z, largest), z, largest);
    store_lanes(z, scaled, i, count);
  });
  if (!hn::AllFalse(tag, no_number)) return std::numeric_limits<float>::quiet_NaN();
  float lanes[kWidth];
  hn::StoreU(largest, tag, lanes);
  return *std::max_element(lanes, lanes + kWidth);
}

/// exponential (kernels/math.h) of x <= 0: the same operations.
HWY_INLINE Vector exponential_below(Vector x) {
  const Tag tag;
  const IntTag int_tag;
  const auto set = [tag](float value) { return hn::Set(tag, value); };
  const auto vanishes = hn::Lt(x, set(-104.0f));
  const Vector clamped = hn::IfThenElse(vanishes, set(-104.0f), x);
  const Vector shifted = hn::MulAdd(clamped, set(0x1.715476p+0f), set(0x1.8p23f));
  const Vector n = hn::Sub(shifted, set(0x1.8p23f));
  const Vector r = hn::MulAdd(n, set(-0x1.7f7d1cp-20f), hn::MulAdd(n, set(-0x1.62e4p-1f), clamped));
  Vector p = hn::MulAdd(set(1.9875691500e-4f), r, set(1.3981999507e-3f));
  p = hn::MulAdd(p, r, set(8.3334519073e-3f));
  p = hn::MulAdd(p, r, set(4.1665795894e-2f));
  p = hn::MulAdd(p, r, set(1.6666665459e-1f));
  p = hn::MulAdd(p, r, set(5.0000001201e-1f));
  p = hn::IfThenZeroElse(vanishes, hn::Add(hn::MulAdd(hn::Mul(p, r), r, r), set(1.0f)));
  const auto exponent = hn::Sub(hn::BitCast(int_tag, shifted), hn::Set(int_tag, 0x4b400000));
  const auto half = hn::ShiftRight<1>(exponent), bias = hn::Set(int_tag, 127);
  const Vector first = hn::BitCast(tag, hn::ShiftLeft<23>(hn::Add(half, bias)));
  const Vector second = hn::BitCast(tag, hn::ShiftLeft<23>(hn::Add(hn::Sub(exponent, half), bias)));
  return hn::Mul(hn::Mul(p, first), second);
}

float exponentials(const float* z, int64_t count, float largest, float* e) {
  const Tag tag;
  const Vector shift = hn::Set(tag, largest);
  Vector sums[kParts];
  for (Vector& sum : sums) sum = hn::Zero(tag);
  // What lies beyond the end adds e^-inf = 0 to its lane.
  for_each_vector(z, count, kNothing, [&](int64_t i, Vector x, int64_t part) {
    const Vector value = exponential_below(hn::Sub(x, shift));
    store_lanes(value, e, i, count);
    sums[part] = hn::Add(sums[part], value);
  });
  float lanes[kLanes];
  for (int64_t part = 0; part < kParts; ++part) hn::StoreU(sums[part], tag, lanes + part * kWidth);
  return add_lanes(lanes);
}

/// Sixteen float64 lanes, each the sum of what was added to it.
class DoubleLanes {
 public:
  DoubleLanes() {
    for (DoubleVector& sum : sums_) sum = hn::Zero(DoubleTag());
  }
  HWY_INLINE void add(Vector values, int64_t part) {
    DoubleVector* sums = sums_ + 2 * part;
    sums[0] = hn::Add(sums[0], hn::PromoteTo(DoubleTag(), hn::LowerHalf(HalfTag(), values)));
    sums[1] = hn::Add(sums[1], hn::PromoteTo(DoubleTag(), hn::UpperHalf(HalfTag(), values)));
  }
  double total() const {
    double lanes[kLanes];
    for (int64_t i = 0; i < 2 * kParts; ++i) hn::StoreU(sums_[i], DoubleTag(), lanes + i * kWidth / 2);
    return add_lanes(lanes);
  }

 private:
  DoubleVector sums_[2 * kParts];
};

double mass_of(const float* e, int64_t count, double* sums) {
  double total = 0;
  for (int64_t b = 0; b < mass_blocks(count); ++b) {
    DoubleLanes lanes;
    for_each_vector(e + b * kMassBlock, std::min(kMassBlock, count - b * kMassBlock), 0.0f,
                    [&](int64_t, Vector values, int64_t part) { lanes.add(values, part); });
    sums[b] = lanes.total();
    total += sums[b];
  }
  return total;
}

template <bool kWeighted>
Split split_as(const float* z, const float* e, int64_t count, float low, float high, float* kept_z, float* kept_e) {
  const Tag tag;
  const Vector lowest = hn::Set(tag, low), highest = hn::Set(tag, high), one = hn::Set(tag, 1.0f);
  DoubleLanes above, between;
  Split result;
  // A lane beyond the end is NaN, which no comparison takes.
  for_each_vector(z, count, std::numeric_limits<float>::quiet_NaN(), [&](int64_t i, Vector x, int64_t part) {
    Vector weight = one;
    if constexpr (kWeighted) {
      if (i + kWidth <= count) {
        weight = hn::LoadU(tag, e + i);
      } else {
        float lanes[kWidth] = {};
        for (int64_t l = 0; i + l < count; ++l) lanes[l] = e[i + l];
        weight = hn::LoadU(tag, lanes);
      }
    }
    const auto is_above = hn::Gt(x, highest);
    const auto is_between = hn::And(hn::Ge(x, lowest), hn::Le(x, highest));
    above.add(hn::IfThenElseZero(is_above, weight), part);
    if (hn::AllFalse(tag, is_between)) return;
    between.add(hn::IfThenElseZero(is_between, weight), part);
    if constexpr (kWeighted) hn::CompressStore(weight, is_between, tag, kept_e + result.kept);
    result.kept += static_cast<int64_t>(hn::CompressStore(x, is_between, tag, kept_z + result.kept));
  });
  result.above = above.total();
  result.between = between.total();
  return result;
}

Split split(const float* z, const float* e, int64_t count, float low, float high, float* kept_z, float* kept_e) {
  return e == nullptr ? split_as<false>(z, e, count, low, high, kept_z, kept_e)
                      : split_as<true>(z, e, count, low, high, kept_z, kept_e);
}

int64_t emit(const float* z, const float* e, int64_t count, float cut, int64_t ties, int32_t* places, float* kept_e) {
  const Tag tag;
  const IntTag int_tag;
  const Vector limit = hn::Set(tag, cut);
  int64_t kept = 0, i = 0;
  const auto keep = [&](int64_t place) {
    places[kept] = static_cast<int32_t>(place);
    if (e != nullptr) kept_e[kept] = e[place];
    ++kept;
  };
  const auto one_by_one = [&](int64_t end) {
    for (; i < end; ++i)
      if (z[i] > cut || (z[i] == cut && ties-- > 0)) keep(i);
  };
  while (i + kWidth <= count) {
    const Vector x = hn::LoadU(tag, z + i);
    if (ties > 0 && !hn::AllFalse(tag, hn::Eq(x, limit))) {
      one_by_one(i + kWidth);
      continue;
    }
    const auto is_above = hn::Gt(x, limit);
    if (!hn::AllFalse(tag, is_above)) {
      const auto ids = hn::Iota(int_tag, static_cast<int32_t>(i));
      hn::CompressStore(ids, hn::RebindMask(int_tag, is_above), int_tag, places + kept);
      if (e != nullptr) hn::CompressStore(hn::LoadU(tag, e + i), is_above, tag, kept_e + kept);
      kept += static_cast<int64_t>(hn::CountTrue(tag, is_above));
    }
    i += kWidth;
  }
  one_by_one(count);
  return kept;
}

}  // namespace motley::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
static_assert(!HWY_ARCH_X86 || HWY_STATIC_TARGET <= HWY_AVX2, "every instruction set must fuse multiply-adds");

namespace motley::kernels::cpu {

HWY_EXPORT(scale_row);
HWY_EXPORT(exponentials);
HWY_EXPORT(mass_of);
HWY_EXPORT(split);
HWY_EXPORT(emit);

float scale_row(const float* logits, int64_t count, float divisor, float* scaled) {
  return HWY_DYNAMIC_DISPATCH(scale_row)(logits, count, divisor, scaled);
}
float exponentials(const float* z, int64_t count, float largest, float* e) {
  return HWY_DYNAMIC_DISPATCH(exponentials)(z, count, largest, e);
}
double mass_of(const float* e, int64_t count, double* sums) { return HWY_DYNAMIC_DISPATCH(mass_of)(e, count, sums); }
Split split(const float* z, const float* e, int64_t count, float low, float high, float* kept_z, float* kept_e) {
  return HWY_DYNAMIC_DISPATCH(split)(z, e, count, low, high, kept_z, kept_e);
}
int64_t emit(const float* z, const float* e, int64_t count, float cut, int64_t ties, int32_t* places, float* kept_e) {
  return HWY_DYNAMIC_DISPATCH(emit)(z, e, count, cut, ties, places, kept_e);
}

}  // namespace motley::kernels::cpu
#endif
