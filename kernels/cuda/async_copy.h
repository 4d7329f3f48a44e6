// Copies from device memory to shared memory that go on while the thread does other work: cp.async of the PTX ISA
// ("Data Movement and Conversion Instructions: cp.async"), sm_80 and later. A thread commits its copies in groups and
// waits for all groups but its latest; others see the data after a barrier that follows the wait.
#pragma once

#include "kernels/cuda/gpu.h"

namespace motley::kernels::GPU_NAMESPACE {

#ifdef __CUDACC__

GPU_DEVICE uint32_t shared_address(const void* data) { return static_cast<uint32_t>(__cvta_generic_to_shared(data)); }

/// 16 bytes, both sides aligned to 16: the first `valid` are those of `from`, the others zero. `from` is not read when
/// none is valid.
GPU_DEVICE void copy_async(void* to, const void* from, int valid = 16) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(valid)
               : "memory");
}
GPU_DEVICE void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// All groups of this thread but the latest `kPending` have arrived.
template <int kPending>
GPU_DEVICE void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

#else

GPU_DEVICE void copy_async(void* to, const void* from, int valid = 16, const Where& where = Where::current()) {
  emulator::copy_async(to, from, 16, static_cast<size_t>(valid), where);
}
GPU_DEVICE void commit_copies() { emulator::commit_copies(); }
template <int kPending>
GPU_DEVICE void wait_for_copies(const Where& where = Where::current()) {
  emulator::wait_for_copies(kPending, where);
}

#endif

}  // namespace motley::kernels::GPU_NAMESPACE
