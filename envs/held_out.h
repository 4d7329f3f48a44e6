// Which problems are held out: a tenth, by a hash of the problem itself. The sets are disjoint by construction,
// whatever the seed, and stay so when data are added.
#pragma once

#include <cstdint>
#include <string_view>

#include "envs/environment.h"
#include "kernels/philox.h"

namespace motley::envs {

inline constexpr uint64_t kHeldOutOneIn = 10;
/// In a space with one member of the wanted set in 1000, the chance to miss it this often is below 1e-43.
inline constexpr uint32_t kMaxDraws = 100000;

constexpr uint64_t text_hash(std::string_view text) {
  uint64_t hash = text.size();
  for (const char c : text) hash = kernels::mix(hash, static_cast<uint8_t>(c));
  return hash;
}
constexpr bool is_held_out(std::string_view problem) { return text_hash(problem) % kHeldOutOneIn == 0; }

/// Draws problem number `index` of a generated set: again with the next attempt's random numbers until it belongs.
/// `draw(stream)` gives a value with `identity()`, the text that decides. Throws TaskError if the set seems empty.
template <typename Draw>
auto draw_problem(uint64_t seed, uint64_t index, bool held_out, const Draw& draw) {
  for (uint32_t attempt = 0; attempt < kMaxDraws; ++attempt) {
    kernels::RandomStream stream({seed, kernels::Purpose::data, index, attempt});
    auto drawn = draw(stream);
    if (is_held_out(drawn.identity()) == held_out) return drawn;
  }
  throw TaskError(held_out ? "too few different problems to hold any out" : "every problem is held out");
}

}  // namespace motley::envs
