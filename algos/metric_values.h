// From numbers to what a metric may hold.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace motley::algos {

/// Infinities become the largest double, so that JSON can hold them; -0 becomes 0. NaN stays: "no number".
inline double representable(double value) {
  constexpr double kLargest = std::numeric_limits<double>::max();
  return (std::isinf(value) ? std::copysign(kLargest, value) : value) + 0.0;
}

/// Nearest rank: the smallest value that at least a share of `share` does not exceed. Reorders `values`, which must
/// not be empty nor hold NaN.
inline double quantile(std::vector<double>& values, double share) {
  const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
  const auto place = values.begin() + static_cast<int64_t>(std::max<size_t>(rank, 1) - 1);
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

}  // namespace motley::algos
