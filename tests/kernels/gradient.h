// Central differences in double, against which every backward kernel is checked.
#pragma once

#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <vector>

namespace motley::kernels {

/// `gradient` must be the derivative of `loss` by every element of `x` (which `loss` reads). With step h the difference
/// errs by h^2 f'''/6 + eps |f| / h: about 1e-9 at h = 1e-5 for losses and derivatives of order 1.
inline void check_gradient(std::vector<double>& x, const std::vector<double>& gradient,
                           const std::function<double()>& loss) {
  REQUIRE(x.size() == gradient.size());
  constexpr double kStep = 1e-5;
  for (size_t i = 0; i < x.size(); ++i) {
    const double kept = x[i];
    x[i] = kept + kStep;
    const double above = loss();
    x[i] = kept - kStep;
    const double below = loss();
    x[i] = kept;
    const double want = (above - below) / (2 * kStep);
    INFO("element " << i);
    REQUIRE(std::fabs(gradient[i] - want) <= 2e-8 * (1 + std::fabs(want)));
  }
}

inline double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace motley::kernels
