// Imposed staleness of lock-step experiments: which weight version a sampler group uses for an update.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "kernels/philox.h"

namespace motley::actors {

/// max(0, current - draw), the draw uniform on the range, bounds included. Depends on seed, update and the group's
/// index alone, so that every arm of a comparison sees the same ages.
inline uint64_t imposed_version(uint64_t seed, uint64_t update, uint64_t group, std::pair<int64_t, int64_t> range,
                                uint64_t current) {
  constexpr uint64_t kStaleness = 0x7374616c65ull;  // apart from other uses of Purpose::data
  const uint64_t session = kernels::mix(kernels::mix(kStaleness, update), group);
  kernels::RandomStream random({seed, kernels::Purpose::data, session, 0});
  const uint64_t width = static_cast<uint64_t>(range.second - range.first) + 1;
  const uint64_t draw = static_cast<uint64_t>(range.first) + random.below(width);
  return current - std::min(current, draw);
}

}  // namespace motley::actors
