// What namespace cuda asks of the CUDA runtime. Only nvcc compiles this file.
#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

#include "kernels/cuda/gpu.h"

namespace motley::kernels::cuda {

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
  thread_local int selected = -1;  // every op asks, before every launch
  if (index == selected) return;
  const int count = device_count();
  if (index < 0 || index >= count)
    throw std::runtime_error("device cuda:" + std::to_string(index) + ": this machine has " + std::to_string(count) +
                             " CUDA devices that can be used");
  check(cudaSetDevice(index), "cudaSetDevice");
  selected = index;
}

void* allocate(size_t bytes) {
  void* memory = nullptr;
  const cudaError_t status = cudaMallocAsync(&memory, bytes > 0 ? bytes : 1, nullptr);
  if (status == cudaErrorMemoryAllocation) {
    size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    throw std::runtime_error("CUDA: out of memory: " + std::to_string(bytes) + " bytes asked for, " +
                             std::to_string(free) + " of " + std::to_string(total) + " free");
  }
  check(status, "cudaMallocAsync");
  return memory;
}

void release(void* memory) noexcept { cudaFreeAsync(memory, nullptr); }

void copy_in(void* to, const void* from, size_t bytes) {
  check(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "copy to the device");
}
void copy_out(void* to, const void* from, size_t bytes) {
  check(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "copy from the device");
}
void copy(void* to, const void* from, size_t bytes) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, nullptr), "copy within the device");
}
void clear(void* memory, size_t bytes) { check(cudaMemsetAsync(memory, 0, bytes, nullptr), "cudaMemsetAsync"); }

void synchronize() { check(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); }

}  // namespace motley::kernels::cuda
