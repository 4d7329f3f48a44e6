#include "kernels/ceilings.h"

#include "kernels/cpu/highway_baseline.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/ceilings.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace motley::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Twelve chains hide the latency of two units with four to five cycles each, and fit into 16 registers.
constexpr int kChains = 12;

double multiply_adds(int64_t rounds, float* result) {
  const hn::ScalableTag<float> tag;
  const auto factor = hn::Set(tag, 0.5f), term = hn::Set(tag, 1.0f);
  hn::Vec<decltype(tag)> chains[kChains];
#pragma GCC unroll 12
  for (int c = 0; c < kChains; ++c) chains[c] = hn::Iota(tag, static_cast<float>(c));
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) chains[c] = hn::MulAdd(chains[c], factor, term);
  }
  auto sum = chains[0];
  for (int c = 1; c < kChains; ++c) sum = hn::Add(sum, chains[c]);
  *result = hn::GetLane(sum);
  return 2.0 * static_cast<double>(rounds) * kChains * static_cast<double>(hn::Lanes(tag));
}

float read_all(const float* HWY_RESTRICT values, int64_t count) {
  constexpr int kStreams = 8;
  const hn::ScalableTag<float> tag;
  const auto lanes = static_cast<int64_t>(hn::Lanes(tag));
  hn::Vec<decltype(tag)> sums[kStreams];
#pragma GCC unroll 8
  for (int s = 0; s < kStreams; ++s) sums[s] = hn::Zero(tag);
  int64_t i = 0;
  for (; i + kStreams * lanes <= count; i += kStreams * lanes) {
#pragma GCC unroll 8
    for (int s = 0; s < kStreams; ++s) sums[s] = hn::Add(sums[s], hn::LoadU(tag, values + i + s * lanes));
  }
  auto sum = sums[0];
  for (int s = 1; s < kStreams; ++s) sum = hn::Add(sum, sums[s]);
  float total = hn::GetLane(hn::SumOfLanes(tag, sum));
  for (; i < count; ++i) total += values[i];
  return total;
}

const char* target_name() { return hwy::TargetName(HWY_TARGET); }

}  // namespace motley::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace motley::kernels::cpu {

HWY_EXPORT(multiply_adds);
HWY_EXPORT(read_all);
HWY_EXPORT(target_name);
double run_multiply_adds(int64_t rounds, float* result) { return HWY_DYNAMIC_DISPATCH(multiply_adds)(rounds, result); }
float read_floats(const float* values, int64_t count) { return HWY_DYNAMIC_DISPATCH(read_all)(values, count); }
const char* instruction_set_name() { return HWY_DYNAMIC_DISPATCH(target_name)(); }

}  // namespace motley::kernels::cpu
#endif
