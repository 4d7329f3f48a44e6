// The shape of a launch. Blocks are numbered in one dimension: what needs two divides.
#pragma once

#include <cstdint>

namespace motley::kernels {

struct Launch {
  const char* name;    // of the kernel, for messages
  int64_t blocks;      // 0: nothing is launched
  int threads;         // of a block, a multiple of the warp
  int64_t shared = 0;  // bytes of GPU_DYNAMIC_SHARED
};

inline constexpr int kWarp = 32;
inline constexpr uint32_t kWholeWarp = 0xffffffffu;

// Shared memory of a block: of arrays of fixed size, and in all. The second is what compute capability 8.6, 8.9
// and 12.0 allow (CUDA C++ Programming Guide, "Compute Capabilities"); 8.0, 9.0 and 10.0 have more.
inline constexpr int64_t kStaticSharedBytes = 48 * 1024, kSharedBytes = 99 * 1024;

}  // namespace motley::kernels
