#include "kernels/buffer_pool.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>

using motley::kernels::BufferPool;

namespace {

constexpr size_t kSizes[] = {0, 1, 100, 4096, 5000, 65536, 100000, 1 << 20, (1 << 20) + 1, 9 << 20, (9 << 20) + 1};
// Sanitized builds free buffers at once.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kReuse = false;
#else
constexpr bool kReuse = true;
#endif

}  // namespace

TEST_CASE("buffers are aligned, long enough, and no two share memory") {
  BufferPool pool(size_t{1} << 26);
  std::vector<std::pair<uint8_t*, size_t>> taken;
  for (int round = 0; round < 2; ++round) {
    for (const size_t size : kSizes) {
      auto* buffer = static_cast<uint8_t*>(pool.take(size));
      CHECK(reinterpret_cast<uintptr_t>(buffer) % 64 == 0);
      std::memset(buffer, static_cast<int>(taken.size()), size);
      taken.emplace_back(buffer, size);
    }
  }
  for (size_t i = 0; i < taken.size(); ++i) {
    const auto [buffer, size] = taken[i];
    CHECK(std::count(buffer, buffer + size, static_cast<uint8_t>(i)) == static_cast<int64_t>(size));
    pool.give_back(buffer, size);
  }
}

TEST_CASE("a freed buffer is handed out again, with its memory as far as the pool may keep it") {
  if (!kReuse) return;
  for (const size_t size : {size_t{1} << 20, size_t{3} << 20}) {
    BufferPool pool(size);
    auto *first = static_cast<uint8_t*>(pool.take(size)), *second = static_cast<uint8_t*>(pool.take(size));
    std::memset(first, 7, size);
    std::memset(second, 8, size);
    pool.give_back(first, size);   // kept
    pool.give_back(second, size);  // beyond the limit: only its addresses are
    CHECK(pool.take(size) == first);
    CHECK(first[size / 2] == 7);
    CHECK(pool.take(size) == second);
    CHECK(second[size / 2] == 0);
    pool.give_back(first, size);
    pool.give_back(second, size);
  }
  BufferPool pool(0);
  void* large = pool.take(size_t{9} << 20);  // has a region of its own, which is unmapped
  pool.give_back(large, size_t{9} << 20);
}
