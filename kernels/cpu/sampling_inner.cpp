#include "kernels/cpu/sampling_inner.h"

#include <algorithm>
#include <limits>

#include "kernels/cpu/highway_baseline.h"
#include "kernels/sampling_mass.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/sampling_inner.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace motley::kernels::cpu::HWY_NAMESPACE {
using HalfTag = hn::Half<RowTag>;
using DoubleTag = hn::Rebind<double, HalfTag>;
using MassTag = hn::RebindToSigned<DoubleTag>;
using MassVector = hn::Vec<MassTag>;
using IntTag = hn::RebindToSigned<RowTag>;
constexpr float kNothing = -std::numeric_limits<float>::infinity();

float scale_row(const float* logits, int64_t count, float divisor, float* scaled) {
  const RowTag tag;
  const RowVector by = hn::Set(tag, divisor);
  RowVector largest = hn::Set(tag, kNothing);
  auto no_number = hn::IsNaN(largest);
  for_each_row_vector(logits, count, kNothing, [&](int64_t i, RowVector x, int64_t) {
    const RowVector z = hn::Div(x, by);
    no_number = hn::Or(no_number, hn::IsNaN(z));
    largest = hn::IfThenElse(hn::Gt(z, largest), z, largest);
    store_values(z, scaled, i, count);
  });
  if (!hn::AllFalse(tag, no_number)) return std::numeric_limits<float>::quiet_NaN();
  float lanes[kRowWidth];
  hn::StoreU(largest, tag, lanes);
  return *std::max_element(lanes, lanes + kRowWidth);
}

float exponentials(const float* z, int64_t count, float largest, float* e) {
  const RowVector shift = hn::Set(RowTag(), largest);
  LaneSums sum;
  // What lies beyond the end adds e^-inf = 0 to its lane.
  for_each_row_vector(z, count, kNothing, [&](int64_t i, RowVector x, int64_t part) {
    const RowVector value = exponential_below(hn::Sub(x, shift));
    store_values(value, e, i, count);
    sum.sums[part] = hn::Add(sum.sums[part], value);
  });
  return sum.total();
}

/// The mass of what was added. Lanes hold the bits of kMassRounder once more for each element: total() takes them out.
class MassSum {
 public:
  MassSum() {
    for (MassVector& sum : sums_) sum = hn::Zero(MassTag());
  }
  HWY_INLINE void add(RowVector values) {
    sums_[0] = hn::Add(sums_[0], units(hn::LowerHalf(HalfTag(), values)));
    sums_[1] = hn::Add(sums_[1], units(hn::UpperHalf(HalfTag(), values)));
    ++added_;
  }
  int64_t total() const {
    constexpr int64_t kWidth = kRowWidth / 2;
    int64_t lanes[kWidth];
    hn::StoreU(hn::Add(sums_[0], sums_[1]), MassTag(), lanes);
    uint64_t sum = 0;
    for (const int64_t lane : lanes) sum += static_cast<uint64_t>(lane);
    return static_cast<int64_t>(sum -
                                added_ * static_cast<uint64_t>(kRowWidth) * std::bit_cast<uint64_t>(kMassRounder));
  }

 private:
  static HWY_INLINE MassVector units(hn::Vec<HalfTag> values) {
    const auto rounder = hn::Set(DoubleTag(), kMassRounder);
    return hn::BitCast(MassTag(), hn::Add(hn::PromoteTo(DoubleTag(), values), rounder));
  }
  MassVector sums_[2];
  uint64_t added_ = 0;
};

int64_t masses_of(const float* e, int64_t count, int64_t* sums) {
  int64_t total = 0;
  for (int64_t b = 0; b < mass_blocks(count); ++b) {
    MassSum sum;
    for_each_row_vector(e + b * kMassBlock, std::min(kMassBlock, count - b * kMassBlock), 0.0f,
                        [&](int64_t, RowVector values, int64_t) { sum.add(values); });
    sums[b] = sum.total();
    total += sums[b];
  }
  return total;
}

template <bool kWeighted>
Split split_as(const float* z, const float* e, int64_t count, float low, float high, float* kept_z, float* kept_e) {
  const RowTag tag;
  const RowVector lowest = hn::Set(tag, low), highest = hn::Set(tag, high);
  MassSum above, between;
  Split result;
  // A lane beyond the end is NaN, which no comparison takes.
  for_each_row_vector(z, count, std::numeric_limits<float>::quiet_NaN(), [&](int64_t i, RowVector x, int64_t) {
    const auto is_above = hn::Gt(x, highest);
    const auto is_between = hn::And(hn::Ge(x, lowest), hn::Le(x, highest));
    RowVector weight = hn::Zero(tag);
    if constexpr (kWeighted) {
      if (i + kRowWidth <= count) {
        weight = hn::LoadU(tag, e + i);
      } else {
        float lanes[kRowWidth] = {};
        for (int64_t l = 0; i + l < count; ++l) lanes[l] = e[i + l];
        weight = hn::LoadU(tag, lanes);
      }
      above.add(hn::IfThenElseZero(is_above, weight));
    } else {
      result.above += static_cast<int64_t>(hn::CountTrue(tag, is_above));
    }
    if (hn::AllFalse(tag, is_between)) return;
    if constexpr (kWeighted) {
      between.add(hn::IfThenElseZero(is_between, weight));
      hn::CompressStore(weight, is_between, tag, kept_e + result.kept);
    }
    result.kept += static_cast<int64_t>(hn::CompressStore(x, is_between, tag, kept_z + result.kept));
  });
  result.between = kWeighted ? between.total() : result.kept;
  if (kWeighted) result.above = above.total();
  return result;
}

Split split(const float* z, const float* e, int64_t count, float low, float high, float* kept_z, float* kept_e) {
  return e == nullptr ? split_as<false>(z, e, count, low, high, kept_z, kept_e)
                      : split_as<true>(z, e, count, low, high, kept_z, kept_e);
}

int64_t emit(const float* z, const float* e, int64_t count, float cut, int64_t ties, int32_t* places, float* kept_e) {
  const RowTag tag;
  const IntTag int_tag;
  const RowVector limit = hn::Set(tag, cut);
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
  while (i + kRowWidth <= count) {
    const RowVector x = hn::LoadU(tag, z + i);
    if (ties > 0 && !hn::AllFalse(tag, hn::Eq(x, limit))) {
      one_by_one(i + kRowWidth);
      continue;
    }
    const auto is_above = hn::Gt(x, limit);
    if (!hn::AllFalse(tag, is_above)) {
      const auto ids = hn::Iota(int_tag, static_cast<int32_t>(i));
      hn::CompressStore(ids, hn::RebindMask(int_tag, is_above), int_tag, places + kept);
      if (e != nullptr) hn::CompressStore(hn::LoadU(tag, e + i), is_above, tag, kept_e + kept);
      kept += static_cast<int64_t>(hn::CountTrue(tag, is_above));
    }
    i += kRowWidth;
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
HWY_EXPORT(masses_of);
HWY_EXPORT(split);
HWY_EXPORT(emit);

float scale_row(const float* logits, int64_t count, float divisor, float* scaled) {
  return HWY_DYNAMIC_DISPATCH(scale_row)(logits, count, divisor, scaled);
}
float exponentials(const float* z, int64_t count, float largest, float* e) {
  return HWY_DYNAMIC_DISPATCH(exponentials)(z, count, largest, e);
}
int64_t masses_of(const float* e, int64_t count, int64_t* sums) {
  return HWY_DYNAMIC_DISPATCH(masses_of)(e, count, sums);
}
Split split(const float* z, const float* e, int64_t count, float low, float high, float* kept_z, float* kept_e) {
  return HWY_DYNAMIC_DISPATCH(split)(z, e, count, low, high, kept_z, kept_e);
}
int64_t emit(const float* z, const float* e, int64_t count, float cut, int64_t ties, int32_t* places, float* kept_e) {
  return HWY_DYNAMIC_DISPATCH(emit)(z, e, count, cut, ties, places, kept_e);
}

}  // namespace motley::kernels::cpu
#endif
