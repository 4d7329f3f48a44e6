#include "kernels/huge_pages.h"

#include <sys/mman.h>

#include <cstdint>

namespace motley::kernels {

void prefer_huge_pages([[maybe_unused]] void* start, [[maybe_unused]] size_t bytes) noexcept {
#ifdef MADV_HUGEPAGE
  const auto at = reinterpret_cast<uintptr_t>(start), first = (at + kHugePage - 1) / kHugePage * kHugePage;
  const uintptr_t last = (at + bytes) / kHugePage * kHugePage;
  if (first < last) madvise(static_cast<std::byte*>(start) + (first - at), last - first, MADV_HUGEPAGE);
#endif
}

}  // namespace motley::kernels
