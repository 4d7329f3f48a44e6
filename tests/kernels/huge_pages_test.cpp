#include "kernels/huge_pages.h"

#include <sys/mman.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "kernels/packed_matrix.h"

namespace motley::kernels {
namespace {

/// Whether the system was asked for huge pages where p lies: the flag "hg" of its mapping.
bool wants_huge_pages(const void* p) {
  const auto address = reinterpret_cast<uintptr_t>(p);
  std::ifstream maps("/proc/self/smaps");
  bool here = false;
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) here = begin <= address && address < end;
    if (here && line.starts_with("VmFlags:")) return (line + ' ').find(" hg ") != std::string::npos;
  }
  return false;
}
bool system_has_huge_pages() { return std::filesystem::exists("/sys/kernel/mm/transparent_hugepage/enabled"); }

}  // namespace

TEST_CASE("huge_pages: wanted where they fit, and the contents stay", "[huge_pages]") {
  const size_t size = 5 * kHugePage;
  void* map = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(map != MAP_FAILED);
  auto* bytes = static_cast<uint8_t*>(map);
  bytes[0] = bytes[size - 1] = 7;
  prefer_huge_pages(bytes + 1, 0);
  prefer_huge_pages(bytes + 1, 4096);
  const size_t first = kHugePage - reinterpret_cast<uintptr_t>(bytes) % kHugePage;  // starts a huge page
  if (system_has_huge_pages()) CHECK_FALSE(wants_huge_pages(bytes + first));
  prefer_huge_pages(bytes + first - 1, 2 * kHugePage + 1);
  if (system_has_huge_pages()) {
    CHECK(wants_huge_pages(bytes + first));
    CHECK(wants_huge_pages(bytes + first + 2 * kHugePage - 1));
    CHECK_FALSE(wants_huge_pages(bytes + first - 1));
    CHECK_FALSE(wants_huge_pages(bytes + first + 2 * kHugePage));
  }
  CHECK((bytes[0] == 7 && bytes[size - 1] == 7 && bytes[first] == 0));
  munmap(map, size);
}

TEST_CASE("huge_pages: large packed codes lie in them", "[huge_pages]") {
  LineVector<uint8_t> small(100, 3), large(3 * kHugePage, 5);
  CHECK(reinterpret_cast<uintptr_t>(small.data()) % 64 == 0);
  CHECK(reinterpret_cast<uintptr_t>(large.data()) % 64 == 0);
  if (system_has_huge_pages()) CHECK(wants_huge_pages(large.data() + kHugePage));
  const LineVector<uint8_t> copy = large;
  CHECK(copy == LineVector<uint8_t>(3 * kHugePage, 5));
}

}  // namespace motley::kernels
