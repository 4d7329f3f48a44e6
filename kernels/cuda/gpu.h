// The vocabulary of device kernels: launch, indices, shared memory, barrier, operations of a warp, atomics, scratch.
// Under nvcc it is CUDA and the bodies are those of namespace cuda; under the host compiler it is the emulator and they
// are those of namespace emulated. Kernels use nothing else of CUDA but kernels/cuda/fragments.h and async_copy.h,
// which are of the same kind, so that one source is both (docs/adding-a-kernel.md).
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cuda/launch.h"
#include "kernels/device_memory.h"

#ifdef __CUDACC__

#include <string>

#define GPU_NAMESPACE cuda
#define GPU_KERNEL __global__
/// The same for launches of `threads` threads a block, with registers for `blocks` such blocks on a multiprocessor.
#define GPU_BOUNDED_KERNEL(threads, blocks) __global__ __launch_bounds__(threads, blocks)
#define GPU_DEVICE __device__ inline
/// Before a loop over an array of a thread: only where its indices are constants does it stay in registers.
#define GPU_UNROLL _Pragma("unroll")
/// An array of a block: T* name. Nothing is known of its contents at first.
#define GPU_SHARED(T, name, count) __shared__ T name[count]
/// The launch's dynamic shared memory: unsigned char* name, aligned to 16 bytes. Once in a kernel.
#define GPU_DYNAMIC_SHARED(name) extern __shared__ __align__(16) unsigned char name[]

namespace motley::kernels::cuda {

GPU_DEVICE int thread() { return static_cast<int>(threadIdx.x); }
GPU_DEVICE int threads() { return static_cast<int>(blockDim.x); }
GPU_DEVICE int64_t block() { return blockIdx.x; }
GPU_DEVICE int64_t blocks() { return gridDim.x; }
/// Every thread of the block must come here.
GPU_DEVICE void barrier() { __syncthreads(); }
/// x, computed where this stands: what follows from it is not kept in registers from before a loop.
GPU_DEVICE int here(int x) {
  asm volatile("" : "+r"(x));
  return x;
}
GPU_DEVICE int64_t here(int64_t x) {
  asm volatile("" : "+l"(x));
  return x;
}
// All 32 lanes of a warp must come to each operation of the warp.
/// The value of the lane whose number in the warp differs by `mask`.
template <class T>
GPU_DEVICE T shuffle_xor(T value, int mask) {
  return __shfl_xor_sync(kWholeWarp, value, mask);
}
/// The value of the lane `distance` above or below; this lane's own where the warp ends.
template <class T>
GPU_DEVICE T shuffle_down(T value, int distance) {
  return __shfl_down_sync(kWholeWarp, value, static_cast<unsigned>(distance));
}
template <class T>
GPU_DEVICE T shuffle_up(T value, int distance) {
  return __shfl_up_sync(kWholeWarp, value, static_cast<unsigned>(distance));
}
/// The value of that lane, 0 .. 31.
template <class T>
GPU_DEVICE T shuffle_from(T value, int lane) {
  return __shfl_sync(kWholeWarp, value, lane);
}
/// Bit i: the condition of lane i.
GPU_DEVICE uint32_t ballot(bool condition) { return __ballot_sync(kWholeWarp, condition); }
GPU_DEVICE bool any_of_warp(bool condition) { return __any_sync(kWholeWarp, condition) != 0; }
GPU_DEVICE bool all_of_warp(bool condition) { return __all_sync(kWholeWarp, condition) != 0; }

/// Return what was there before. Threads come in no order: a sum of floats then depends on it.
template <class T>
GPU_DEVICE T atomic_add(T* at, std::type_identity_t<T> value) {
  return atomicAdd(at, value);
}
template <class T>
GPU_DEVICE T atomic_max(T* at, std::type_identity_t<T> value) {
  return atomicMax(at, value);
}

void check(cudaError_t status, const char* what);

template <class... Args>
void launch(const Launch& shape, void (*kernel)(Args...), const std::type_identity_t<Args>&... args) {
  if (shape.blocks == 0) return;
  if (shape.blocks > 0x7fffffff) check(cudaErrorInvalidConfiguration, shape.name);
  if (shape.shared > kStaticSharedBytes)
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shape.shared)),
          shape.name);
  kernel<<<static_cast<unsigned>(shape.blocks), static_cast<unsigned>(shape.threads), static_cast<size_t>(shape.shared),
           static_cast<cudaStream_t>(stream_in_use())>>>(args...);
  check(cudaGetLastError(), shape.name);
}

}  // namespace motley::kernels::cuda

#else

#include "kernels/emulator/emulator.h"

#define GPU_NAMESPACE emulated
#define GPU_KERNEL inline
#define GPU_BOUNDED_KERNEL(threads, blocks) inline
#define GPU_UNROLL
#define GPU_DEVICE inline
#define GPU_SHARED(T, name, count)                              \
  T* const name = ::motley::kernels::emulator::shared_array<T>( \
      [] {                                                      \
        static const char key = 0;                              \
        return &key;                                            \
      }(),                                                      \
      count)
#define GPU_DYNAMIC_SHARED(name) unsigned char* const name = ::motley::kernels::emulator::dynamic_shared()

namespace motley::kernels::emulated {

using emulator::Where;

GPU_DEVICE int thread() { return emulator::place.thread; }
GPU_DEVICE int threads() { return emulator::place.threads; }
GPU_DEVICE int64_t block() { return emulator::place.block; }
GPU_DEVICE int64_t blocks() { return emulator::place.blocks; }
GPU_DEVICE void barrier(const Where& where = Where::current()) { emulator::barrier(where); }
template <class T>
GPU_DEVICE T here(T x) {
  return x;
}

/// What lane source(this lane) of the warp gives.
template <class T, class Source>
GPU_DEVICE T shuffle(T value, Source source, const Where& where) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= emulator::kSlotBytes);
  emulator::meet(&value, sizeof(T), where);
  T other;
  std::memcpy(&other, emulator::given(source(thread() % kWarp), where), sizeof(T));
  return other;
}
template <class T>
GPU_DEVICE T shuffle_xor(T value, int mask, const Where& where = Where::current()) {
  return shuffle(
      value, [&](int lane) { return lane ^ mask; }, where);
}
template <class T>
GPU_DEVICE T shuffle_down(T value, int distance, const Where& where = Where::current()) {
  return shuffle(
      value, [&](int lane) { return lane + distance < kWarp ? lane + distance : lane; }, where);
}
template <class T>
GPU_DEVICE T shuffle_up(T value, int distance, const Where& where = Where::current()) {
  return shuffle(
      value, [&](int lane) { return lane >= distance ? lane - distance : lane; }, where);
}
template <class T>
GPU_DEVICE T shuffle_from(T value, int lane, const Where& where = Where::current()) {
  return shuffle(
      value, [&](int) { return lane; }, where);
}
GPU_DEVICE uint32_t ballot(bool condition, const Where& where = Where::current()) {
  emulator::meet(&condition, sizeof(condition), where);
  uint32_t bits = 0;
  for (int lane = 0; lane < kWarp; ++lane)
    bits |= static_cast<uint32_t>(*static_cast<const bool*>(emulator::given(lane, where))) << lane;
  return bits;
}
GPU_DEVICE bool any_of_warp(bool condition, const Where& where = Where::current()) {
  return ballot(condition, where) != 0;
}
GPU_DEVICE bool all_of_warp(bool condition, const Where& where = Where::current()) {
  return ballot(condition, where) == kWholeWarp;
}

template <class T>
GPU_DEVICE T atomic_add(T* at, std::type_identity_t<T> value) {
  const T before = *at;
  *at = before + value;
  return before;
}
template <class T>
GPU_DEVICE T atomic_max(T* at, std::type_identity_t<T> value) {
  const T before = *at;
  *at = before < value ? value : before;
  return before;
}

template <class... Args>
void launch(const Launch& shape, void (*kernel)(Args...), const std::type_identity_t<Args>&... args) {
  (emulator::note_pointers(&args, sizeof(Args)), ...);  // NOLINT(bugprone-sizeof-expression): of an address too
  emulator::submit([=] { emulator::run(shape, [&] { kernel(args...); }); });
}

}  // namespace motley::kernels::emulated

#endif

namespace motley::kernels::GPU_NAMESPACE {

/// Memory of the device for the length of a call; none for a count of 0.
template <class T>
class Scratch {
 public:
  explicit Scratch(int64_t count)
      : data_(count > 0 ? static_cast<T*>(allocate(static_cast<size_t>(count) * sizeof(T))) : nullptr) {}
  ~Scratch() {
    if (data_ != nullptr) release(data_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  T* data() const { return data_; }

 private:
  T* data_;
};

constexpr int64_t pieces(int64_t count, int64_t size) { return (count + size - 1) / size; }

}  // namespace motley::kernels::GPU_NAMESPACE
