// Counter-based random numbers: Philox4x32-10 (Salmon et al., SC 2011). A draw is a pure function of its key, so it
// does not depend on batching, threads, or on which sampler serves.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "kernels/formats.h"

namespace motley::kernels {

MOTLEY_HD constexpr std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

/// Mixes 64-bit words into one (SplitMix64's finalizer): for keys made of several parts.
MOTLEY_HD constexpr uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = a + 0x9E3779B97F4A7C15ull * (b + 1);
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

/// What a random number is for; part of its key.
enum class Purpose : uint32_t { train = 1, eval = 2, data = 3, init = 4, generate = 5 };

/// The key of one session's draws. `session` is made of task or set, epoch, prompt and sample: no arrival counter.
struct RandomKey {
  uint64_t seed = 0;
  Purpose purpose = Purpose::train;
  uint64_t session = 0;
  uint32_t attempt = 0;
};
/// Four words at an absolute position of the session.
MOTLEY_HD constexpr std::array<uint32_t, 4> random_words(const RandomKey& key, uint32_t position) {
  const uint64_t k = mix(key.seed, static_cast<uint64_t>(key.purpose));
  return philox({static_cast<uint32_t>(key.session), static_cast<uint32_t>(key.session >> 32), key.attempt, position},
                {static_cast<uint32_t>(k), static_cast<uint32_t>(k >> 32)});
}
/// Uniform in (0, 1): 52 bits, never 0 and never 1.
MOTLEY_HD constexpr double random_uniform(const RandomKey& key, uint32_t position) {
  const auto words = random_words(key, position);
  const uint64_t bits = (uint64_t{words[0]} << 32 | words[1]) >> 12;
  return (static_cast<double>(bits) + 0.5) * 0x1p-52;
}

/// A stream of draws for data generation and initialization: position counts up.
class RandomStream {
 public:
  explicit RandomStream(const RandomKey& key) : key_(key) {}
  double uniform() { return random_uniform(key_, position_++); }
  /// Uniform integer in [0, bound); bound >= 1.
  uint64_t below(uint64_t bound) { return static_cast<uint64_t>(uniform() * static_cast<double>(bound)); }
  /// Standard normal (Box-Muller).
  double normal();

 private:
  RandomKey key_;
  uint32_t position_ = 0;
};

}  // namespace motley::kernels
