#include "kernels/graph_memory.h"

#include "kernels/device_buffer.h"
#include "kernels/device_memory.h"

namespace motley::kernels {
namespace {

thread_local GraphMemory* of_thread = nullptr;

void release_on(const Device& device, void* memory) noexcept {
  device.kind == DeviceKind::cuda ? cuda::release(memory) : emulated::release(memory);
}

}  // namespace

GraphMemory* GraphMemory::of_capture() { return of_thread; }

GraphMemory::~GraphMemory() {
  for (const auto& [memory, block] : blocks_) release_on(device_, memory);
}

void GraphMemory::begin() { of_thread = this; }

size_t GraphMemory::end() noexcept {
  of_thread = nullptr;
  size_t left = 0;
  std::erase_if(blocks_, [&](const auto& entry) {
    if (entry.second.in_use) left += entry.second.asked;
    return entry.second.in_use;
  });
  for (void* memory : released_) release_on(device_, memory);
  released_.clear();
  return left;
}

void* GraphMemory::allocate(size_t bytes) {
  // The smallest block that fits. The emulated device sees stores outside a block: there it is of the very size.
  auto best = blocks_.end();
  for (auto it = blocks_.begin(); it != blocks_.end(); ++it) {
    const Block& block = it->second;
    if (block.in_use || (device_.kind == DeviceKind::emulated ? block.size != bytes : block.size < bytes)) continue;
    if (best == blocks_.end() || block.size < best->second.size) best = it;
  }
  if (best == blocks_.end()) {
    void* const memory =
        device_.kind == DeviceKind::cuda ? cuda::allocate_at_once(bytes) : emulated::allocate_at_once(bytes);
    best = blocks_.emplace(memory, Block{bytes}).first;
  }
  best->second.in_use = true;
  best->second.asked = bytes;
  return best->first;
}

size_t GraphMemory::release(void* memory) {
  const auto found = blocks_.find(memory);
  if (found == blocks_.end()) {
    released_.push_back(memory);
    return 0;
  }
  found->second.in_use = false;
  return found->second.asked;
}

size_t GraphMemory::held() const {
  size_t bytes = 0;
  for (const auto& [memory, block] : blocks_) bytes += block.size;
  return bytes;
}

}  // namespace motley::kernels
