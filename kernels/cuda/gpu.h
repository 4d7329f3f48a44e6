// The vocabulary of device kernels: launch, indices, shared memory, barrier, warp shuffle, scratch. Under nvcc it is
// CUDA and the bodies are those of namespace cuda; under the host compiler it is the emulator and they are those of
// namespace emulated. Kernels use nothing else of CUDA, so that one source is both (docs/adding-a-kernel.md).
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/launch.h"
#include "kernels/device_memory.h"

#ifdef __CUDACC__

#include <string>

#define GPU_NAMESPACE cuda
#define GPU_KERNEL __global__
#define GPU_DEVICE __device__ inline
/// An array of a block: T* name. Nothing is known of its contents at first.
#define GPU_SHARED(T, name, count) __shared__ T name[count]

namespace motley::kernels::cuda {

GPU_DEVICE int thread() { return static_cast<int>(threadIdx.x); }
GPU_DEVICE int threads() { return static_cast<int>(blockDim.x); }
GPU_DEVICE int64_t block() { return blockIdx.x; }
GPU_DEVICE int64_t blocks() { return gridDim.x; }
/// Every thread of the block must come here.
GPU_DEVICE void barrier() { __syncthreads(); }
/// The value of the lane whose number in the warp differs by `mask`. All 32 lanes must come here.
template <class T>
GPU_DEVICE T shuffle_xor(T value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}

void check(cudaError_t status, const char* what);

template <class... Args>
void launch(const Launch& shape, void (*kernel)(Args...), const std::type_identity_t<Args>&... args) {
  if (shape.blocks == 0) return;
  if (shape.blocks > 0x7fffffff) check(cudaErrorInvalidConfiguration, shape.name);
  kernel<<<static_cast<unsigned>(shape.blocks), static_cast<unsigned>(shape.threads)>>>(args...);
  check(cudaGetLastError(), shape.name);
}

}  // namespace motley::kernels::cuda

#else

#include "kernels/emulator/emulator.h"

#define GPU_NAMESPACE emulated
#define GPU_KERNEL inline
#define GPU_DEVICE inline
#define GPU_SHARED(T, name, count)                              \
  T* const name = ::motley::kernels::emulator::shared_array<T>( \
      [] {                                                      \
        static const char key = 0;                              \
        return &key;                                            \
      }(),                                                      \
      count)

namespace motley::kernels::emulated {

GPU_DEVICE int thread() { return emulator::place.thread; }
GPU_DEVICE int threads() { return emulator::place.threads; }
GPU_DEVICE int64_t block() { return emulator::place.block; }
GPU_DEVICE int64_t blocks() { return emulator::place.blocks; }
GPU_DEVICE void barrier(const emulator::Where& where = emulator::Where::current()) { emulator::barrier(where); }
template <class T>
GPU_DEVICE T shuffle_xor(T value, int mask, const emulator::Where& where = emulator::Where::current()) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= emulator::kSlotBytes);
  T other;
  emulator::exchange(&value, &other, sizeof(T), mask, where);
  return other;
}

template <class... Args>
void launch(const Launch& shape, void (*kernel)(Args...), const std::type_identity_t<Args>&... args) {
  emulator::run(shape, [&] { kernel(args...); });
}

}  // namespace motley::kernels::emulated

#endif

namespace motley::kernels::GPU_NAMESPACE {

/// Memory of the device for the length of a call.
template <class T>
class Scratch {
 public:
  explicit Scratch(int64_t count) : data_(static_cast<T*>(allocate(static_cast<size_t>(count) * sizeof(T)))) {}
  ~Scratch() { release(data_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  T* data() const { return data_; }

 private:
  T* data_;
};

constexpr int64_t pieces(int64_t count, int64_t size) { return (count + size - 1) / size; }

}  // namespace motley::kernels::GPU_NAMESPACE
