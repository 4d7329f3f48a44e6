// Buffers that a thread keeps between calls, so that kernels do not allocate once they are warm. A tag names a buffer;
// whoever uses a tag must not call anything that uses the same one while it holds the pointer.
#pragma once

#include <cstdint>
#include <memory>
#include <new>

#include "kernels/huge_pages.h"

namespace motley::kernels::cpu {

constexpr size_t kScratchAlignment = 64;  // a cache line, and the widest vector

struct AlignedDelete {
  void operator()(void* p) const { ::operator delete (p, std::align_val_t{kScratchAlignment}); }
};

/// At least `count` elements; their values are whatever the last user left.
template <class Tag, class T>
T* scratch(int64_t count) {
  thread_local std::unique_ptr<T, AlignedDelete> buffer;
  thread_local int64_t capacity = 0;
  if (count > capacity || !buffer) {
    buffer.reset();
    capacity = count + count / 4 + 64;
    buffer.reset(static_cast<T*>(
        ::operator new (static_cast<size_t>(capacity) * sizeof(T), std::align_val_t{kScratchAlignment})));
    prefer_huge_pages(buffer.get(), static_cast<size_t>(capacity) * sizeof(T));
  }
  return buffer.get();
}

}  // namespace motley::kernels::cpu
