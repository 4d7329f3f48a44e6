// What namespace cuda asks of the CUDA runtime. Only nvcc compiles this file.
#include <cuda_runtime.h>

#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

#include "kernels/cuda/gpu.h"
#include "kernels/graph_memory.h"

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

/// The selected device is another one while the scope lasts.
class OnDevice {
 public:
  explicit OnDevice(int device) : before_(current_device()) { check(cudaSetDevice(device), "cudaSetDevice"); }
  ~OnDevice() { cudaSetDevice(before_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_;
};

/// Destroyed at once: CUDA keeps what is recorded or waited for until it has come.
struct ScopedEvent {
  explicit ScopedEvent(int device_in) : device(device_in) {
    const OnDevice scope(device);
    event = static_cast<cudaEvent_t>(create_event());
  }
  ~ScopedEvent() { destroy_event(event); }
  ScopedEvent(const ScopedEvent&) = delete;
  ScopedEvent& operator=(const ScopedEvent&) = delete;
  void record_on(cudaStream_t stream) const {
    const OnDevice scope(device);
    check(cudaEventRecord(event, stream), "cudaEventRecord");
  }
  int device;
  cudaEvent_t event = nullptr;
};

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

int compute_capability() {
  const auto attribute = [](cudaDeviceAttr which) {
    int value = 0;
    check(cudaDeviceGetAttribute(&value, which, current_device()), "cudaDeviceGetAttribute");
    return value;
  };
  return attribute(cudaDevAttrComputeCapabilityMajor) * 10 + attribute(cudaDevAttrComputeCapabilityMinor);
}

void* allocate(size_t bytes) {
  if (GraphMemory* const graphs = GraphMemory::of_capture()) return graphs->allocate(bytes);
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

void release(void* memory) noexcept {
  if (GraphMemory* const graphs = GraphMemory::of_capture())
    graphs->release(memory);
  else
    cudaFreeAsync(memory, selected);
}

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
  // Each of the two streams waits for the other: the copy for what made the bytes, and their release for the copy.
  const ScopedEvent made(from_device), copied(device);
  made.record_on(nullptr);
  check(cudaStreamWaitEvent(selected, made.event, 0), "cudaStreamWaitEvent");
  check(cudaMemcpyPeerAsync(to, device, from, from_device, bytes, selected), "copy from another device");
  copied.record_on(selected);
  const OnDevice other(from_device);
  check(cudaStreamWaitEvent(nullptr, copied.event, 0), "cudaStreamWaitEvent");
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
void finish_event(void* event) { check(cudaEventSynchronize(static_cast<cudaEvent_t>(event)), "cudaEventSynchronize"); }
void finish_stream() { check(cudaStreamSynchronize(selected), "cudaStreamSynchronize"); }
void synchronize() { check(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); }

}  // namespace motley::kernels::cuda
