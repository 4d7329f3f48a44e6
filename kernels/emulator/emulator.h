// Runs device kernels on the host, one fiber per thread of a block, and is stricter than a device: it finds threads
// that miss a barrier or meet at different ones, lanes that meet at different shuffles, and stores outside shared
// memory; shared memory starts as signalling NaN, and the order of blocks, warps and lanes is permuted by a seed. A
// result that changes with the seed shows a race or a missing barrier. Kernels reach it through kernels/cuda/gpu.h.
#pragma once

#include <cstdint>
#include <functional>
#include <source_location>
#include <stdexcept>
#include <type_traits>

#include "kernels/cuda/launch.h"

namespace motley::kernels::emulator {

using Where = std::source_location;
inline constexpr size_t kSlotBytes = 16;            // of a value that a shuffle carries
inline constexpr int64_t kSharedBytes = 48 * 1024;  // of a block: what every device has without asking

/// What a kernel did wrong: kernel, block, thread, file and line.
class Fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Where the running thread of the kernel is.
struct Place {
  int64_t block = 0, blocks = 0;
  int thread = 0, threads = 0;
};
extern constinit thread_local Place place;

/// The seed of the order of blocks, warps and lanes for launches of this thread; 0: ascending.
void set_order(uint64_t seed);
/// Runs `body` as every thread of every block. Throws Fault, and what the body throws.
void run(const Launch& launch, const std::function<void()>& body);

void barrier(const Where& where);
/// Gives `mine` to the warp and takes the value of the lane that differs by `mask`.
void exchange(const void* mine, void* theirs, size_t bytes, int mask, const Where& where);

/// Poison of shared memory: NaN of the element's own type, else the pattern that the seed gives.
enum class Poison : uint8_t { f32, f64, other };
void* shared_bytes(const void* key, size_t bytes, Poison poison);
template <class T>
T* shared_array(const void* key, size_t count) {
  static_assert(std::is_trivially_copyable_v<T>);
  constexpr Poison kPoison = std::is_same_v<T, float>    ? Poison::f32
                             : std::is_same_v<T, double> ? Poison::f64
                                                         : Poison::other;
  return static_cast<T*>(shared_bytes(key, count * sizeof(T), kPoison));
}

}  // namespace motley::kernels::emulator
