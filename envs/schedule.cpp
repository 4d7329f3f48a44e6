#include "envs/schedule.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace motley::envs {

namespace {
constexpr uint64_t kStride = 1024;
}

Schedule::Schedule(std::vector<double> weights) : weights_(std::move(weights)) {
  // Scaled by a power of two, which is exact, so that sums and products of extreme weights stay finite.
  const int exponent = std::ilogb(*std::max_element(weights_.begin(), weights_.end()));
  for (double& weight : weights_) weight = std::scalbn(std::scalbn(weight, -exponent / 2), exponent / 2 - exponent);
  sum_ = std::accumulate(weights_.begin(), weights_.end(), 0.0);
  kept_.emplace_back(weights_.size(), 0);
}

size_t Schedule::next(const std::vector<uint64_t>& counts, uint64_t n) const {
  const auto picks = static_cast<double>(n + 1);
  size_t best = weights_.size();
  for (size_t i = 0; i < weights_.size(); ++i) {
    const auto count = static_cast<double>(counts[i]);
    if (count * sum_ >= weights_[i] * picks) continue;  // one more would exceed its quota, rounded up
    const bool first = best == weights_.size();
    if (first || weights_[i] * (static_cast<double>(counts[best]) + 1) > weights_[best] * (count + 1)) best = i;
  }
  return best;
}

std::vector<uint64_t> Schedule::counts(uint64_t n) const {
  if (weights_.size() == 1) return {n};
  const std::lock_guard lock(mutex_);
  const auto advance = [&](std::vector<uint64_t> counts, uint64_t from, uint64_t to) {
    for (uint64_t i = from; i < to; ++i) ++counts[next(counts, i)];
    return counts;
  };
  while (kept_.size() <= n / kStride) {
    const uint64_t start = (kept_.size() - 1) * kStride;
    kept_.push_back(advance(kept_.back(), start, start + kStride));
  }
  return advance(kept_[n / kStride], n / kStride * kStride, n);
}

Schedule::Pick Schedule::at(uint64_t n) const {
  if (weights_.size() == 1) return {0, n};
  const std::vector<uint64_t> before = counts(n);
  const size_t entry = next(before, n);
  return {entry, before[entry]};
}

}  // namespace motley::envs
