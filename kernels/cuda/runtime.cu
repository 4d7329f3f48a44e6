// What namespace cuda asks of the CUDA runtime. Only nvcc compiles this file.
#include <cuda_runtime.h>

#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

#include "kernels/cuda/gpu.h"

namespace motley::kernels::cuda {
namespace {

thread_local cudaStream_t selected = nullptr;
std::mutex mutex;  // guards both
std::set<int> devices_with_pool;
std::set<std::pair<int, int>> peers;

cudaMemPool_t pool_of(int device) {
  cudaMemPool_t pool = nullptr;
  check(cudaDeviceGetDefaultMemPool(&pool, device), "cudaDeviceGetDefaultMemPool");
  return pool;
}
int current_device() {
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}

/// The pool keeps what is released instead of giving it back to the driver at every wait.
void keep_memory(int device) {
  const std::lock_guard lock(mutex);
  if (!devices_with_pool.insert(device).second) return;
  uint64_t all = UINT64_MAX;
  check(cudaMemPoolSetAttribute(pool_of(device), cudaMemPoolAttrReleaseThreshold, &all), "cudaMemPoolSetAttribute");
}

/// `device` may reach the memory of `other`, where the machine lets it; else copies are staged by the driver.
void connect(int device, int other) {
  const std::lock_guard lock(mutex);
  if (!peers.insert({device, other}).second) return;
  int can = 0;
  check(cudaDeviceCanAccessPeer(&can, device, other), "cudaDeviceCanAccessPeer");
  if (can == 0) return;
  cudaMemAccessDesc access{};
  access.location.type = cudaMemLocationTypeDevice;
  access.location.id = device;
  access.flags = cudaMemAccessFlagsProtReadWrite;
  check(cudaMemPoolSetAccess(pool_of(other), &access, 1), "cudaMemPoolSetAccess");
}

}  // namespace

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  throw std::runtime_error(std::string("CUDA: ") + what + ": " + cudaGetErrorString(status));
}

bool built() { return true; }

int device_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

void use_device(int index) {
  thread_local int in_use = -1;  // every op asks, before every launch
  if (index == in_use) return;
  const int count = device_count();
  if (index < 0 || index >= count)
    throw std::runtime_error("device cuda:" + std::to_string(index) + ": this machine has " + std::to_string(count) +
                             " CUDA devices that can be used");
  check(cudaSetDevice(index), "cudaSetDevice");
  keep_memory(index);
  in_use = index;
}

void* allocate(size_t bytes) {
  const size_t wanted = bytes > 0 ? bytes : 1;
  void* memory = nullptr;
  cudaError_t status = cudaMallocAsync(&memory, wanted, selected);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // or the next launch would report it
    trim();
    status = cudaMallocAsync(&memory, wanted, selected);
  }
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw std::runtime_error(out_of_memory("cuda:" + std::to_string(current_device()), bytes, memory_use()));
  }
  check(status, "cudaMallocAsync");
  return memory;
}

void release(void* memory) noexcept { cudaFreeAsync(memory, selected); }

MemoryUse memory_use() {
  const cudaMemPool_t pool = pool_of(current_device());
  const auto attribute = [&](cudaMemPoolAttr which) {
    uint64_t value = 0;
    check(cudaMemPoolGetAttribute(pool, which, &value), "cudaMemPoolGetAttribute");
    return static_cast<size_t>(value);
  };
  MemoryUse use;
  use.in_use = attribute(cudaMemPoolAttrUsedMemCurrent);
  use.held = attribute(cudaMemPoolAttrReservedMemCurrent);
  use.most = attribute(cudaMemPoolAttrUsedMemHigh);
  check(cudaMemGetInfo(&use.free, &use.total), "cudaMemGetInfo");
  return use;
}

void trim() {
  synchronize();
  check(cudaMemPoolTrimTo(pool_of(current_device()), 0), "cudaMemPoolTrimTo");
}

void copy_in(void* to, const void* from, size_t bytes) {
  copy_in_async(to, from, bytes);
  finish_stream();
}
void copy_out(void* to, const void* from, size_t bytes) {
  copy_out_async(to, from, bytes);
  finish_stream();
}
void copy(void* to, const void* from, size_t bytes) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, selected), "copy within the device");
}
void clear(void* memory, size_t bytes) { check(cudaMemsetAsync(memory, 0, bytes, selected), "cudaMemsetAsync"); }

void* allocate_pinned(size_t bytes) {
  void* memory = nullptr;
  check(cudaMallocHost(&memory, bytes > 0 ? bytes : 1), "cudaMallocHost");
  return memory;
}
void release_pinned(void* memory) noexcept { cudaFreeHost(memory); }
void copy_in_async(void* to, const void* pinned, size_t bytes) {
  check(cudaMemcpyAsync(to, pinned, bytes, cudaMemcpyHostToDevice, selected), "copy to the device");
}
void copy_out_async(void* pinned, const void* from, size_t bytes) {
  check(cudaMemcpyAsync(pinned, from, bytes, cudaMemcpyDeviceToHost, selected), "copy from the device");
}
void copy_from_peer(void* to, const void* from, int from_device, size_t bytes) {
  const int device = current_device();
  connect(device, from_device);
  check(cudaSetDevice(from_device), "cudaSetDevice");
  const cudaError_t status = cudaStreamSynchronize(nullptr);
  check(cudaSetDevice(device), "cudaSetDevice");
  check(status, "copy from another device");
  check(cudaMemcpyPeerAsync(to, device, from, from_device, bytes, selected), "copy from another device");
}

void* create_stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  return stream;
}
void destroy_stream(void* stream) noexcept { cudaStreamDestroy(static_cast<cudaStream_t>(stream)); }
void use_stream(void* stream) { selected = static_cast<cudaStream_t>(stream); }
void* stream_in_use() { return selected; }

void* create_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
  return event;
}
void destroy_event(void* event) noexcept { cudaEventDestroy(static_cast<cudaEvent_t>(event)); }
void record(void* event) { check(cudaEventRecord(static_cast<cudaEvent_t>(event), selected), "cudaEventRecord"); }
void await(void* event) {
  check(cudaStreamWaitEvent(selected, static_cast<cudaEvent_t>(event), 0), "cudaStreamWaitEvent");
}
void finish_event(void* event) {
  check(cudaEventSynchronize(static_cast<cudaEvent_t>(event)), "cudaEventSynchronize");
}
void finish_stream() { check(cudaStreamSynchronize(selected), "cudaStreamSynchronize"); }
void synchronize() { check(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); }

}  // namespace motley::kernels::cuda
