// Kernels over single elements: each thread has a few, a block's width apart, so that a warp's lie side by side and
// their loads are under way together.
#pragma once

#include "kernels/cuda/gpu.h"

namespace motley::kernels::GPU_NAMESPACE {

inline constexpr int kElementThreads = 128, kElementsEach = 4;
inline constexpr int64_t kElementsOfBlock = int64_t{kElementThreads} * kElementsEach;

/// store_at(i, value_at(i)) for the thread's elements of [0, count): all values come before all stores.
template <class Value, class Store>
GPU_DEVICE void map_elements(int64_t count, Value value_at, Store store_at) {
  const int64_t first = block() * kElementsOfBlock + thread();
  decltype(value_at(int64_t{0})) values[kElementsEach];
  GPU_UNROLL
  for (int e = 0; e < kElementsEach; ++e)
    if (first + e * kElementThreads < count) values[e] = value_at(first + e * kElementThreads);
  GPU_UNROLL
  for (int e = 0; e < kElementsEach; ++e)
    if (first + e * kElementThreads < count) store_at(first + e * kElementThreads, values[e]);
}

/// The launch of a kernel that maps `count` elements.
inline Launch element_launch(const char* name, int64_t count) {
  return {name, pieces(count, kElementsOfBlock), kElementThreads};
}

}  // namespace motley::kernels::GPU_NAMESPACE
