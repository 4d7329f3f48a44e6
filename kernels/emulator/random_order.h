// The emulator's source of orders and patterns.
#pragma once

#include <cstdint>

namespace motley::kernels::emulator {

/// SplitMix64 (Steele, Lea, Flood 2014): orders need no more.
inline uint64_t scrambled(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace motley::kernels::emulator
