// Memory of tensors. Freed buffers of the CPU are kept by size and handed out again, so that a training step, which
// allocates the same sizes over and over, neither maps nor faults in fresh pages. Other devices' come straight from
// kernels/device_buffer.h: CUDA has a pool of its own, and emulated memory is fresh to show what was never written.
#pragma once

#include <cstddef>
#include <memory>

#include "kernels/device_buffer.h"

namespace motley {

/// Uninitialized, 64-byte aligned, returned to the pool when the last owner is gone. Safe from every thread.
std::shared_ptr<void> allocate_buffer(size_t bytes, const kernels::Device& device = {});

}  // namespace motley
