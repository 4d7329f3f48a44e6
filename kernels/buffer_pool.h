// Memory of tensors and packed matrices. Freed buffers are kept by size and handed out again, so that a training step,
// which allocates the same sizes over and over, neither maps nor faults in fresh pages. Buffers lie side by side in
// huge pages.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace motley::kernels {

/// Safe from every thread.
class BufferPool {
 public:
  /// Of freed buffers at most `most_kept` bytes keep their memory.
  explicit BufferPool(size_t most_kept) : most_kept_(most_kept) {}
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  /// Uninitialized, 64-byte aligned, at least `bytes` long. Throws std::bad_alloc.
  void* take(size_t bytes);
  /// What take(bytes) gave.
  void give_back(void* buffer, size_t bytes) noexcept;

 private:
  using Buffers = std::map<size_t, std::vector<void*>>;
  static void* find(Buffers& buffers, size_t size);
  void* carve(size_t size);

  std::mutex mutex_;
  const size_t most_kept_;
  size_t kept_ = 0;
  Buffers free_;                 // by size
  Buffers empty_;                // addresses whose memory went back to the system
  std::byte* region_ = nullptr;  // what is left of the last region
  std::byte* region_end_ = nullptr;
};

/// The process's pool, never destroyed: what static storage holds may outlive any other static.
BufferPool& buffer_pool();
/// Uninitialized, 64-byte aligned, returned to the process's pool when the last owner is gone. Safe from every thread.
std::shared_ptr<void> allocate_buffer(size_t bytes);

}  // namespace motley::kernels
