#include "kernels/cpu/head_inner.h"

#include <algorithm>
#include <limits>

#include "kernels/cpu/highway_baseline.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/head_inner.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace motley::kernels::cpu::HWY_NAMESPACE {

constexpr float kNoMass = -std::numeric_limits<float>::infinity();

float largest(const float* values, int64_t count) {
  LaneSums most(kNoMass);
  for_each_row_vector(values, count, kNoMass, [&](int64_t, RowVector x, int64_t part) {
    most.sums[part] = hn::IfThenElse(hn::Gt(x, most.sums[part]), x, most.sums[part]);
  });
  float lanes[kLanes];
  most.store(lanes);
  return max_lanes(lanes, kLanes);
}

float exp_sum(const float* values, int64_t count, float shift) {
  const RowVector by = hn::Set(RowTag(), shift);
  LaneSums sum;
  // What lies beyond the end adds e^-inf = 0 to its lane.
  for_each_row_vector(values, count, kNoMass, [&](int64_t, RowVector x, int64_t part) {
    sum.sums[part] = hn::Add(sum.sums[part], exponential_of(hn::Sub(x, by)));
  });
  return sum.total();
}

float p_log_p(const float* values, int64_t count, float lse) {
  const RowTag tag;
  const RowVector by = hn::Set(tag, lse);
  LaneSums sum;
  for_each_row_vector(values, count, kNoMass, [&](int64_t, RowVector x, int64_t part) {
    const RowVector log_p = hn::Sub(x, by), p = exponential_of(log_p);
    const RowVector term = hn::IfThenZeroElse(hn::Eq(p, hn::Zero(tag)), hn::Mul(p, log_p));
    sum.sums[part] = hn::Add(sum.sums[part], term);
  });
  return sum.total();
}

void cotangents(const float* values, float* out, int64_t count, float lse, float entropy, float a, float c) {
  const RowTag tag;
  const RowVector by = hn::Set(tag, lse), all = hn::Set(tag, a);
  if (c == 0.0f) {
    for_each_row_vector(values, count, 0.0f, [&](int64_t i, RowVector x, int64_t) {
      store_values(hn::Mul(all, exponential_of(hn::Sub(x, by))), out, i, count);
    });
    return;
  }
  const RowVector h = hn::Set(tag, entropy), factor = hn::Set(tag, c);
  for_each_row_vector(values, count, 0.0f, [&](int64_t i, RowVector x, int64_t) {
    const RowVector log_p = hn::Sub(x, by), p = exponential_of(log_p);
    const RowVector slope = hn::Sub(all, hn::Mul(factor, hn::Add(log_p, h)));
    store_values(hn::IfThenZeroElse(hn::Eq(p, hn::Zero(tag)), hn::Mul(p, slope)), out, i, count);
  });
}

void divide(float* values, int64_t count, float divisor) {
  const RowVector by = hn::Set(RowTag(), divisor);
  for_each_row_vector(values, count, 0.0f,
                      [&](int64_t i, RowVector x, int64_t) { store_values(hn::Div(x, by), values, i, count); });
}

}  // namespace motley::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace motley::kernels::cpu {

HWY_EXPORT(largest);
HWY_EXPORT(exp_sum);
HWY_EXPORT(p_log_p);
HWY_EXPORT(cotangents);
HWY_EXPORT(divide);

float row_largest(const float* values, int64_t count) { return HWY_DYNAMIC_DISPATCH(largest)(values, count); }
float row_exp_sum(const float* values, int64_t count, float shift) {
  return HWY_DYNAMIC_DISPATCH(exp_sum)(values, count, shift);
}
float row_p_log_p(const float* values, int64_t count, float lse) {
  return HWY_DYNAMIC_DISPATCH(p_log_p)(values, count, lse);
}
void row_cotangents(const float* values, float* out, int64_t count, float lse, float entropy, float a, float c) {
  HWY_DYNAMIC_DISPATCH(cotangents)(values, out, count, lse, entropy, a, c);
}
void row_divide(float* values, int64_t count, float divisor) { HWY_DYNAMIC_DISPATCH(divide)(values, count, divisor); }

}  // namespace motley::kernels::cpu
#endif
