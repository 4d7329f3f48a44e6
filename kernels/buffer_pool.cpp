#include "kernels/buffer_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "kernels/huge_pages.h"

namespace motley::kernels {
namespace {

constexpr std::align_val_t kAlignment{64};
constexpr size_t kSmallestKept = 4096;               // below this malloc is as good
constexpr size_t kSmallestCarved = size_t{1} << 16;  // from here on buffers come from regions of huge pages
constexpr size_t kRegion = size_t{1} << 25;
constexpr size_t kLargestCarved = kRegion / 4;  // beyond, a buffer has a region of its own
constexpr size_t kMostKept = size_t{1} << 29;
// The address sanitizer sees a use after free only if the memory is really freed.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kReuse = false;
#else
constexpr bool kReuse = true;
#endif

/// Eight sizes to an octave: at most 1/8 of a buffer is slack.
size_t bucket_size(size_t bytes) {
  if (bytes < kSmallestKept) return std::max<size_t>(bytes, 1);
  const size_t step = std::bit_floor(bytes) / 8;
  return (bytes + step - 1) / step * step;
}
size_t whole_huge_pages(size_t bytes) { return (bytes + kHugePage - 1) / kHugePage * kHugePage; }

/// Whole huge pages, from the beginning of one on.
std::byte* map_region(size_t size) {
  const size_t mapped = size + kHugePage;
  void* start = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) throw std::bad_alloc();
  auto* at = static_cast<std::byte*>(start);
  const size_t before = whole_huge_pages(reinterpret_cast<uintptr_t>(at)) - reinterpret_cast<uintptr_t>(at);
  if (before > 0) munmap(at, before);
  munmap(at + before + size, kHugePage - before);
  prefer_huge_pages(at + before, size);
  return at + before;
}

/// The pages that lie wholly inside go back to the system; the addresses stay.
void drop_memory(void* buffer, size_t size) noexcept {
  constexpr size_t kPage = 4096;
  const auto at = reinterpret_cast<uintptr_t>(buffer), first = (at + kPage - 1) / kPage * kPage;
  const uintptr_t last = (at + size) / kPage * kPage;
  if (first < last) madvise(static_cast<std::byte*>(buffer) + (first - at), last - first, MADV_DONTNEED);
}

}  // namespace

void* BufferPool::find(Buffers& buffers, size_t size) {
  const auto found = buffers.find(size);
  if (found == buffers.end() || found->second.empty()) return nullptr;
  void* buffer = found->second.back();
  found->second.pop_back();
  return buffer;
}

void* BufferPool::carve(size_t size) {
  if (static_cast<size_t>(region_end_ - region_) < size) {
    region_ = map_region(kRegion);
    region_end_ = region_ + kRegion;
  }
  return std::exchange(region_, region_ + size);
}

void* BufferPool::take(size_t bytes) {
  const size_t size = bucket_size(bytes);
  if (!kReuse || size < kSmallestKept) {
    void* buffer = ::operator new(size, kAlignment);
    prefer_huge_pages(buffer, size);
    return buffer;
  }
  const std::lock_guard lock(mutex_);
  if (void* buffer = find(free_, size)) {
    kept_ -= size;
    return buffer;
  }
  if (size < kSmallestCarved) return ::operator new(size, kAlignment);
  if (size > kLargestCarved) return map_region(whole_huge_pages(size));
  void* buffer = find(empty_, size);
  return buffer != nullptr ? buffer : carve(size);
}

void BufferPool::give_back(void* buffer, size_t bytes) noexcept {
  const size_t size = bucket_size(bytes);
  if (!kReuse || size < kSmallestKept) return ::operator delete(buffer, kAlignment);
  const std::lock_guard lock(mutex_);
  const bool keep = kept_ + size <= most_kept_;
  try {
    if (keep) {
      free_[size].push_back(buffer);
      kept_ += size;
      return;
    }
    if (size >= kSmallestCarved && size <= kLargestCarved) {
      drop_memory(buffer, size);
      empty_[size].push_back(buffer);
      return;
    }
  } catch (const std::bad_alloc&) {  // then it is freed below
  }
  if (size < kSmallestCarved)
    ::operator delete(buffer, kAlignment);
  else if (size > kLargestCarved)
    munmap(buffer, whole_huge_pages(size));
  else
    drop_memory(buffer, size);  // its addresses are lost
}

BufferPool& buffer_pool() {
  static auto* const pool = new BufferPool(kMostKept);
  return *pool;
}

std::shared_ptr<void> allocate_buffer(size_t bytes) {
  return {buffer_pool().take(bytes), [bytes](void* buffer) { buffer_pool().give_back(buffer, bytes); }};
}

}  // namespace motley::kernels
