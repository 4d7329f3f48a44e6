// Memory of tensors. Freed buffers are kept by size and handed out again, so that a training step, which allocates the
// same sizes over and over, neither maps nor faults in fresh pages.
#pragma once

#include <cstddef>
#include <memory>

namespace motley {

/// Uninitialized, 64-byte aligned, returned to the pool when the last owner is gone. Safe from every thread.
std::shared_ptr<void> allocate_buffer(size_t bytes);

}  // namespace motley
