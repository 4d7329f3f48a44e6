// Pages of 2 MiB. With the usual 4 KiB a product that reads columns, or weights that are read once, misses the TLB on
// every few cache lines.
#pragma once

#include <cstddef>

namespace motley::kernels {

constexpr size_t kHugePage = size_t{1} << 21;

/// Asks the system to put huge pages under [start, start + bytes) as far as they fit. A wish: where the system has none
/// or wants none nothing happens.
void prefer_huge_pages(void* start, size_t bytes) noexcept;

}  // namespace motley::kernels
