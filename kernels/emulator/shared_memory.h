// The shared memory of a block: arrays between guard zones, filled with poison when a block first asks for them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/emulator/guarded.h"

namespace motley::kernels::emulator {

/// What an array starts as: NaN of the element's own type, bytes of 0xff (NaN in every format of two bytes or more, and
/// in e4m3 and e5m2), or a pattern that the seed gives.
enum class Poison : uint8_t { f32, f64, ones, other };
inline constexpr unsigned char kOnes = 0xff;

class SharedMemory {
 public:
  /// The array of that key, as the present block left it. Throws std::length_error when arrays together pass `limit`.
  void* array(const void* key, size_t bytes, Poison poison, uint64_t seed, int64_t limit);
  /// Another block begins: its arrays are poisoned when it asks for them.
  void next_block();
  /// Another kernel begins: it has no arrays.
  void clear() { arrays_.clear(); }
  /// Of all arrays.
  size_t bytes() const;
  /// True when [data, data + bytes) lies in an array.
  bool contains(const void* data, size_t bytes) const;
  /// The size of an array next to which something was stored since the last call; 0: none.
  size_t overrun();

 private:
  struct Array {
    const void* key;
    std::unique_ptr<GuardedBytes> memory;
    Poison poison;
    bool fresh;  // not yet asked for in this block
  };
  std::vector<Array> arrays_;
};

}  // namespace motley::kernels::emulator
