// Long contexts: blocks of positions, and memory.
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <new>
#include <thread>

#include "kernels/attention.h"
#include "kernels/cpu/matmul_inner.h"
#include "tests/kernels/attention_fixture.h"

namespace {
std::atomic<size_t> aligned_bytes{0};
}

// Kernels' buffers are what asks for alignment.
void* operator new(size_t size, std::align_val_t alignment) {
  aligned_bytes += size;
  const size_t unit = static_cast<size_t>(alignment);
  if (void* p = std::aligned_alloc(unit, (size + unit - 1) / unit * unit)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { std::free(p); }

namespace motley::kernels {
namespace {

/// Bytes of buffers that `body` needs on a thread that has none.
template <class Body>
size_t buffer_bytes(Body body) {
  const size_t before = aligned_bytes;
  std::thread(body).join();
  return aligned_bytes - before;
}

}  // namespace

TEST_CASE("blocks of 4096 positions: decode, chunks and the packed pass agree") {
  constexpr int64_t kLength = 4096 + 4096 + 70;
  const AttentionShape shape{2, 1, 4};
  Packed<float> packed({kLength}, 70, 1.5, shape);
  Paged<float> cache(shape, kLength, Format::fp32, 1.0, 16);
  cache.write(0, kLength, packed.k.data(), packed.v.data());
  packed.run();
  const auto rows_from = [&](int64_t first, int64_t count) {
    std::vector<float> y(static_cast<size_t>(count * 8));
    cache.attend(first, count, packed.q.data() + first * 8, y.data());
    return y;
  };
  for (const int64_t first : {int64_t{4090}, int64_t{8188}, kLength - 70}) {
    const int64_t count = std::min<int64_t>(70, kLength - first);
    const std::vector<float> want(packed.y.begin() + first * 8, packed.y.begin() + (first + count) * 8);
    CHECK(same_bits(want, rows_from(first, count)));
    for (int64_t i = 0; i < count; i += 6)
      REQUIRE(same_bits({want.begin() + i * 8, want.begin() + (i + 1) * 8}, rows_from(first + i, 1)));
    const Threads scope(2);
    CHECK(same_bits(want, rows_from(first, count)));
  }
}

TEMPLATE_TEST_CASE("one row over 262,144 positions", "", float, bf16) {
  using T = TestType;
  constexpr int64_t kLength = 262144, kChunk = 4096;
  const AttentionShape shape{2, 1, 8};
  Paged<T> cache(shape, kLength, Format::e4m3, 0.01, 16);
  const auto q = values<T>(16, 71, 2.0);
  std::vector<double> sum(2), want(16);
  for (int64_t first = 0; first < kLength; first += kChunk) {
    auto k = values<T>(kChunk * 8, 72 + static_cast<uint64_t>(first)),
         v = values<T>(kChunk * 8, 73 + static_cast<uint64_t>(first));
    for (auto* part : {&k, &v}) cpu::round_values(part->data(), part->data(), Format::e4m3, 0.01, kChunk * 8);
    cache.write(first, kChunk, k.data(), v.data());
    for (int64_t j = 0; j < kChunk; ++j) {
      for (int64_t h = 0; h < 2; ++h) {
        double score = 0;
        for (int64_t d = 0; d < 8; ++d) score += real(q[h * 8 + d]) * real(k[j * 8 + d]);
        const double weight = std::exp(kScale * score);
        sum[h] += weight;
        for (int64_t d = 0; d < 8; ++d) want[h * 8 + d] += weight * real(v[j * 8 + d]);
      }
    }
  }
  const auto row_at = [&] {
    std::vector<T> y(16);
    cache.attend(kLength - 1, 1, q.data(), y.data());
    return y;
  };
  const auto y = row_at();
  // Blocks of 4096 weights and values below 1 are chains, 64 of which are added; a weight errs by 30 roundings. Errors
  // of chains are taken as they fall, not as they could: a hundredth of the bound.
  const double bound = 0.01 * (4096 + 64 + 30) * unit<Compute<T>>() + unit<T>();
  for (int64_t i = 0; i < 16; ++i) REQUIRE(std::fabs(real(y[i]) - want[i] / sum[i / 8]) <= bound);
  for (const int threads : {2, 3}) {
    const Threads scope(threads);
    CHECK(same_bits(y, row_at()));
  }
  for (int i = 0; i < cpu::instruction_sets(); ++i) {
    cpu::use_instruction_set(i);
    CHECK(same_bits(y, row_at()));
  }
  cpu::use_best_instruction_set();
}

TEST_CASE(
    "attention's buffers do not grow with the length, nor the backward "
    "pass's faster than it") {
  const AttentionShape shape{2, 1, 16};
  const auto bytes_at = [&](int32_t length) {
    Packed<bf16> packed({length}, 80, 1.0, shape);
    Paged<bf16> cache(shape, length, Format::bf16, 1.0, 16);
    cache.write(0, length, packed.k.data(), packed.v.data());
    const size_t forward = buffer_bytes([&] { packed.run(); });
    const size_t paged = buffer_bytes([&] { cache.attend(length - 300, 300, packed.q.data(), packed.y.data()); });
    const size_t backward = buffer_bytes([&] { packed.run_backward(); });
    return std::array{forward, paged, backward};
  };
  const auto shorter = bytes_at(512), longer = bytes_at(2048);
  CHECK(shorter[0] > 0);
  CHECK(longer[0] == shorter[0]);
  CHECK(longer[1] == shorter[1]);
  CHECK(longer[2] <= 4 * shorter[2]);
  CHECK(longer[0] < 256 * 1024);
}

}  // namespace motley::kernels
