// The probability mass of a token in sampling, as an integer: exponential(z - largest), which is at most 1, in units of
// 2^-42. Integers add up to the same total in any order, so that every device and every instruction set finds the same
// candidate set and the same draw. A unit is 2^-19 of what float's exponential errs by at 1; what lies 30 below the
// largest logit weighs nothing.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/formats.h"

namespace motley::kernels {

/// So many ids' masses add up without overflow.
inline constexpr int64_t kMostSampledIds = int64_t{1} << 20;
/// A double of this size has a unit in the last place of 2^-42: adding it rounds there, and its bits count units.
inline constexpr double kMassRounder = 0x1.8p10;

/// Of e in [0, 1].
MOTLEY_HD inline int64_t mass_of(float e) {
  return std::bit_cast<int64_t>(static_cast<double>(e) + kMassRounder) - std::bit_cast<int64_t>(kMassRounder);
}
/// What a set must weigh to have `share`, in (0, 1], of the total: from 1 to all of it.
MOTLEY_HD inline int64_t mass_to_reach(double share, int64_t total) {
  const auto mass = static_cast<int64_t>(std::ceil(share * static_cast<double>(total)));
  return mass < 1 ? 1 : mass < total ? mass : total;
}
/// The drawn token is the first at which the running sum exceeds this: `uniform`, in [0, 1), of the total.
MOTLEY_HD inline int64_t mass_to_exceed(double uniform, int64_t total) {
  const auto mass = static_cast<int64_t>(uniform * static_cast<double>(total));
  return mass < total ? mass : total - 1;
}

}  // namespace motley::kernels
