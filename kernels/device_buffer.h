// Memory of any device by run-time value, and copies between devices: what tensors and quantized weights are made of.
#pragma once

#include <cstddef>
#include <memory>

#include "kernels/device.h"

namespace motley::kernels {

/// Uninitialized, aligned to 64 bytes, given back when the last owner is gone (kernels/device_memory.h). Throws
/// std::runtime_error where there is no such device or not enough memory. Tensors of the CPU have a pool of their own
/// (kernels/buffer_pool.h).
std::shared_ptr<void> allocate_on(const Device& device, size_t bytes);
/// Returns when the bytes may be read on the host, or by what this thread's stream is given next; `from` may change
/// then. Whoever hands memory of a device to another stream waits for this one first (finish_stream). From one CUDA
/// device to another it goes directly, between other devices through the host. What kernels of the emulated device did
/// wrong is thrown when the host reads their results.
void copy_bytes(void* to, const Device& to_device, const void* from, const Device& from_device, size_t bytes);
/// Sets bytes to 0.
void clear_bytes(void* memory, const Device& device, size_t bytes);
/// Makes a CUDA device the one that this thread's kernels run on.
void select_device(const Device& device);

/// A copy of `count` elements of the host's in the memory of a device.
template <class T>
std::shared_ptr<const T> copied_to(const Device& device, const T* values, size_t count) {
  const std::shared_ptr<void> memory = allocate_on(device, count * sizeof(T));
  copy_bytes(memory.get(), device, values, {}, count * sizeof(T));
  return std::static_pointer_cast<const T>(memory);
}

/// Runs a kernel on a device: MOTLEY_DISPATCH after select_device.
#define MOTLEY_RUN(device, function, ...)             \
  do {                                                \
    ::motley::kernels::select_device(device);         \
    MOTLEY_DISPATCH((device), function, __VA_ARGS__); \
  } while (false)

}  // namespace motley::kernels
