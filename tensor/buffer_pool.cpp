#include "tensor/buffer_pool.h"

#include <bit>
#include <map>
#include <mutex>
#include <new>
#include <vector>

namespace motley {
namespace {

constexpr std::align_val_t kAlignment{64};
constexpr size_t kSmallest = 4096;             // below this malloc is as good
constexpr size_t kMostKept = size_t{1} << 29;  // bytes kept for reuse; what goes beyond is freed
// The address sanitizer sees a use after free only if the memory is really freed.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kReuse = false;
#else
constexpr bool kReuse = true;
#endif

/// Eight sizes to an octave: at most 1/8 of a buffer is slack.
size_t bucket_size(size_t bytes) {
  if (bytes < kSmallest) return bytes;
  const size_t step = std::bit_floor(bytes) / 8;
  return (bytes + step - 1) / step * step;
}

class Pool {
 public:
  void* take(size_t size) {
    if (kReuse && size >= kSmallest) {
      const std::lock_guard lock(mutex_);
      const auto found = free_.find(size);
      if (found != free_.end() && !found->second.empty()) {
        void* buffer = found->second.back();
        found->second.pop_back();
        kept_ -= size;
        return buffer;
      }
    }
    return ::operator new(size, kAlignment);
  }
  void give_back(void* buffer, size_t size) noexcept {
    if (kReuse && size >= kSmallest) {
      const std::lock_guard lock(mutex_);
      if (kept_ + size <= kMostKept) {
        try {
          free_[size].push_back(buffer);
          kept_ += size;
          return;
        } catch (const std::bad_alloc&) {  // then it is freed below
        }
      }
    }
    ::operator delete(buffer, kAlignment);
  }

 private:
  std::mutex mutex_;
  std::map<size_t, std::vector<void*>> free_;
  size_t kept_ = 0;
};

/// Never destroyed: tensors of static storage duration may outlive any other static.
Pool& pool() {
  static Pool* const instance = new Pool;
  return *instance;
}

}  // namespace

std::shared_ptr<void> allocate_buffer(size_t bytes, const kernels::Device& device) {
  if (device.kind != kernels::DeviceKind::cpu) return kernels::allocate_on(device, bytes);
  const size_t size = bucket_size(bytes == 0 ? 1 : bytes);
  return {pool().take(size), [size](void* buffer) { pool().give_back(buffer, size); }};
}

}  // namespace motley
