// The shape of a launch. Blocks are numbered in one dimension: what needs two divides.
#pragma once

#include <cstdint>

namespace motley::kernels {

struct Launch {
  const char* name;  // of the kernel, for messages
  int64_t blocks;    // 0: nothing is launched
  int threads;       // of a block, a multiple of the warp
};

inline constexpr int kWarp = 32;

}  // namespace motley::kernels
