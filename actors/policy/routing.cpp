#include "actors/policy/routing.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace motley::actors {

std::vector<double> group_shares(std::span<const std::optional<double>> fixed, std::span<const double> capacity) {
  double fixed_sum = 0, measured_sum = 0;
  for (size_t g = 0; g < capacity.size(); ++g) {
    if (capacity[g] <= 0) continue;
    if (fixed[g]) {
      fixed_sum += *fixed[g];
    } else {
      measured_sum += capacity[g];
    }
  }
  const double rest = measured_sum > 0 ? std::max(0.0, 1.0 - fixed_sum) : 0.0;
  std::vector<double> shares(capacity.size(), 0.0);
  for (size_t g = 0; g < capacity.size(); ++g) {
    if (capacity[g] <= 0) continue;
    shares[g] = fixed[g] ? *fixed[g] : rest * capacity[g] / measured_sum;
  }
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  if (sum > 0)
    for (double& share : shares) share /= sum;
  return shares;
}

size_t ProportionalChoice::choose(std::span<const double> shares) {
  for (size_t g = 0; g < shares.size(); ++g) credit_[g] = shares[g] > 0 ? credit_[g] + shares[g] : 0.0;
  size_t best = 0;
  for (size_t g = 1; g < shares.size(); ++g)
    if (shares[g] > 0 && (shares[best] <= 0 || credit_[g] > credit_[best])) best = g;
  credit_[best] -= 1.0;
  return best;
}

size_t choice_by_number(std::span<const double> shares, uint64_t session) {
  const double point = static_cast<double>(((session + 1) * 0x9E3779B97F4A7C15ull) >> 11) * 0x1p-53;
  double sum = 0;
  size_t last = 0;
  for (size_t g = 0; g < shares.size(); ++g) {
    if (shares[g] <= 0) continue;
    sum += shares[g];
    last = g;
    if (point < sum) return g;
  }
  return last;  // the shares' sum was rounded below 1
}

void MeasuredCapacity::add(double tokens, double seconds) {
  constexpr double kWindow = 10.0;  // seconds
  const double keep = std::exp(-seconds / kWindow);
  tokens_ = tokens_ * keep + tokens;
  seconds_ = seconds_ * keep + seconds;
}

}  // namespace motley::actors
