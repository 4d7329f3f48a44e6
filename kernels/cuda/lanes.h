// Reductions in the order of kernels/cpu/lanes.h: element i in virtual lane i mod 16, lanes added by the fixed tree. A
// half-warp is the 16 lanes of one row; a block computes a long row's terms together and adds them in 16 lanes.
#pragma once

#include "kernels/cuda/gpu.h"

namespace motley::kernels::GPU_NAMESPACE {

inline constexpr int kLanes = 16;
inline constexpr int kTile = 1024;  // terms at a time, a multiple of kLanes
inline constexpr int kMaxWarps = 32;

/// The sum of a half-warp's values, in each of its lanes. Addition commutes, so all of them hold the bits of the tree.
template <class C>
GPU_DEVICE C add_lanes(C value) {
  for (int mask = kLanes / 2; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
  return value;
}

/// Sum of value(i) over [0, count), for all threads of the block. `tile` holds kTile values of the block.
template <class C, class F>
GPU_DEVICE C sum_lanes(int64_t count, F value, C* tile) {
  C lane{0};
  for (int64_t base = 0; base < count; base += kTile) {
    const int size = static_cast<int>(count - base < kTile ? count - base : kTile);
    barrier();
    for (int i = thread(); i < size; i += threads()) tile[i] = value(base + i);
    barrier();
    if (thread() < kLanes)
      for (int i = thread(); i < size; i += kLanes) lane += tile[i];
  }
  if (thread() < kWarp) lane = add_lanes(lane);
  barrier();
  if (thread() == 0) tile[0] = lane;
  barrier();
  return tile[0];
}

/// The largest of the threads' values, for all of them. `part` holds kMaxWarps values of the block. No NaN.
template <class C>
GPU_DEVICE C block_max(C value, C* part) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    const C other = shuffle_xor(value, mask);
    value = other > value ? other : value;
  }
  barrier();
  if (thread() % kWarp == 0) part[thread() / kWarp] = value;
  barrier();
  for (int warp = 0; warp < threads() / kWarp; ++warp) value = part[warp] > value ? part[warp] : value;
  return value;
}

}  // namespace motley::kernels::GPU_NAMESPACE
