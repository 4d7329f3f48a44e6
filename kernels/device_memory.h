// Memory of the devices that are not the host: what a kernel's pointers point to. Used by ops, kernels' scratch and the
// tests; a CUDA device's memory is ordered with its default stream, emulated memory lies between guard zones.
#pragma once

#include <cstddef>

namespace motley::kernels {

namespace cuda {
/// True when the CUDA bodies are in this binary; else everything else here throws "built without CUDA".
bool built();
/// CUDA devices of this machine that can be used; 0 when there is no driver.
int device_count();
/// Selects the device of this thread for all that follows.
void use_device(int index);

/// Uninitialized; throws std::runtime_error when there is not enough. `bytes` may be 0.
void* allocate(size_t bytes);
void release(void* memory) noexcept;
void copy_in(void* to, const void* from, size_t bytes);
void copy_out(void* to, const void* from, size_t bytes);
/// Within the device, in the order of its kernels.
void copy(void* to, const void* from, size_t bytes);
/// Sets bytes to 0.
void clear(void* memory, size_t bytes);
/// Waits for all kernels; throws what one of them met.
void synchronize();
}  // namespace cuda

namespace emulated {
/// Filled with 0xff (NaN in every float format); a store next to it is seen by AddressSanitizer or by synchronize.
void* allocate(size_t bytes);
void release(void* memory) noexcept;
void copy_in(void* to, const void* from, size_t bytes);
void copy_out(void* to, const void* from, size_t bytes);
/// Within the device, in the order of its kernels.
void copy(void* to, const void* from, size_t bytes);
/// Sets bytes to 0.
void clear(void* memory, size_t bytes);
/// Throws emulator::Fault when a guard zone of any allocation was written to.
void synchronize();
}  // namespace emulated

}  // namespace motley::kernels
