// Reductions inside a row: element i goes to virtual lane i mod 16, lanes are added by a fixed tree (l and l + 8, then
// 4, 2, 1). The order depends on the length alone, on every instruction set.
#pragma once

#include <cmath>
#include <cstdint>

namespace motley::kernels::cpu {

constexpr int kLanes = 16;

template <class C>
inline C add_lanes(C* lane) {
  for (int l = 0; l < 8; ++l) lane[l] += lane[l + 8];
  for (int l = 0; l < 4; ++l) lane[l] += lane[l + 4];
  for (int l = 0; l < 2; ++l) lane[l] += lane[l + 2];
  return lane[0] + lane[1];
}

/// Sum of value(i) over [0, count).
template <class C, class F>
inline C sum_lanes(int64_t count, F value) {
  C lane[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int l = 0; l < kLanes; ++l) lane[l] += value(i + l);
  for (int l = 0; i + l < count; ++l) lane[l] += value(i + l);
  return add_lanes(lane);
}

/// Sum of a[i] * b[i]; each lane is one chain of fused multiply-adds.
template <class C>
inline C dot_lanes(const C* a, const C* b, int64_t count) {
  C lane[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int l = 0; l < kLanes; ++l) lane[l] = std::fma(a[i + l], b[i + l], lane[l]);
  for (int l = 0; i + l < count; ++l) lane[l] = std::fma(a[i + l], b[i + l], lane[l]);
  return add_lanes(lane);
}

/// The largest value, NaN left out; -inf for count = 0.
template <class C>
inline C max_lanes(const C* values, int64_t count) {
  C lane[kLanes];
  for (int l = 0; l < kLanes; ++l) lane[l] = -static_cast<C>(INFINITY);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int l = 0; l < kLanes; ++l) lane[l] = values[i + l] > lane[l] ? values[i + l] : lane[l];
  for (int l = 0; i + l < count; ++l) lane[l] = values[i + l] > lane[l] ? values[i + l] : lane[l];
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int l = 0; l < width; ++l) lane[l] = lane[l + width] > lane[l] ? lane[l + width] : lane[l];
  return lane[0];
}

}  // namespace motley::kernels::cpu
