// A shuffled order of a finite set that needs no memory: a keyed permutation of [0, size).
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/philox.h"

namespace motley::envs {

/// Where `index` (below `size`) goes under `key`. A Feistel network of Philox over the next even power of two, walked
/// until it lands inside (cycle walking: Black and Rogaway, CT-RSA 2002); on average at most four steps.
constexpr uint64_t shuffled(uint64_t index, uint64_t size, uint64_t key) {
  constexpr uint32_t kRounds = 8;
  const int half = (std::bit_width(size - 1) + 1) / 2;
  const uint64_t mask = (uint64_t{1} << half) - 1;
  do {
    uint64_t left = index >> half, right = index & mask;
    for (uint32_t round = 0; round < kRounds; ++round) {
      const auto words = kernels::philox({static_cast<uint32_t>(right), static_cast<uint32_t>(right >> 32), round, 0},
                                         {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)});
      const uint64_t next = left ^ ((uint64_t{words[1]} << 32 | words[0]) & mask);
      left = right;
      right = next;
    }
    index = left << half | right;
  } while (index >= size);
  return index;
}

}  // namespace motley::envs
