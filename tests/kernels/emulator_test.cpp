#include "kernels/emulator/emulator.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <thread>
#include <vector>

#include "kernels/cuda/gpu.h"

namespace motley::kernels::emulated {
namespace {

using emulator::Fault;

GPU_KERNEL void places_kernel(int64_t* out) { out[block() * threads() + thread()] = block() * 1000 + thread(); }

/// The sum of a block by halves in shared memory, and of every pair of lanes by a shuffle.
GPU_KERNEL void sums_kernel(const float* x, float* sums, float* pairs) {
  GPU_SHARED(float, part, 64);
  const int64_t i = block() * threads() + thread();
  part[thread()] = x[i];
  for (int width = threads() / 2; width > 0; width /= 2) {
    barrier();
    if (thread() < width) part[thread()] += part[thread() + width];
  }
  if (thread() == 0) sums[block()] = part[0];
  pairs[i] = x[i] + shuffle_xor(x[i], 1);
}

GPU_KERNEL void returns_early_kernel(int) {
  if (thread() == 5) return;
  barrier();
}
GPU_KERNEL void two_barriers_kernel(int) {
  if (thread() < 32)
    barrier();
  else
    barrier();
}
GPU_KERNEL void barrier_in_warp_kernel(int) {
  if (thread() == 3)
    barrier();
  else
    shuffle_xor(1, 1);
}
GPU_KERNEL void returns_before_shuffle_kernel(int) {
  if (thread() == 40) return;
  shuffle_xor(1, 1);
}
GPU_KERNEL void two_shuffles_kernel(int) {
  if (thread() % 2 == 0)
    shuffle_xor(1, 1);
  else
    shuffle_xor(2, 1);
}
GPU_KERNEL void lane_beyond_kernel(int) { shuffle_xor(1, kWarp); }
GPU_KERNEL void throws_kernel(int) {
  barrier();
  if (thread() == 7) throw std::invalid_argument("seven");
  barrier();
}
GPU_KERNEL void throws_between_shuffles_kernel(int) {
  shuffle_xor(1, 1);
  if (thread() == 7) throw std::invalid_argument("seven");
  shuffle_xor(2, 1);
}
GPU_KERNEL void launches_kernel(int) { launch({"inner", 1, 32}, places_kernel, nullptr); }

template <class T>
GPU_KERNEL void reads_shared_kernel(T* out) {
  GPU_SHARED(T, fresh, 40);
  if (thread() == 0) {
    for (int i = 0; i < 40; ++i) out[block() * 40 + i] = fresh[i];
    for (int i = 0; i < 40; ++i) fresh[i] = T{1};
  }
}
GPU_KERNEL void large_shared_kernel(int) {
  GPU_SHARED(double, first, 4096);
  GPU_SHARED(double, second, 2049);
  first[0] = second[0] = 0;
}
GPU_KERNEL void order_kernel(std::vector<int64_t>* order) {
  if (thread() == 0) order->push_back(block());
}
GPU_KERNEL void lane_order_kernel(std::vector<int64_t>* order) { order->push_back(thread()); }

std::string fault_of(void (*kernel)(int)) {
  try {
    launch({"planted", 2, 64}, kernel, 0);
  } catch (const Fault& fault) {
    return fault.what();
  }
  return {};
}

}  // namespace

TEST_CASE("the emulator runs every thread of every block, in any order") {
  const int64_t blocks = 5, threads = 64;
  std::vector<float> x(blocks * threads), sums(blocks), pairs(x.size());
  std::iota(x.begin(), x.end(), 1.0f);
  for (const uint64_t order : {0, 1, 2, 3}) {
    emulator::set_order(order);
    std::vector<int64_t> places(blocks * threads, -1);
    launch({"places", blocks, threads}, places_kernel, places.data());
    for (int64_t i = 0; i < blocks * threads; ++i) REQUIRE(places[i] == i / threads * 1000 + i % threads);
    launch({"sums", blocks, threads}, sums_kernel, x.data(), sums.data(), pairs.data());
    for (int64_t b = 0; b < blocks; ++b) REQUIRE(sums[b] == 64.0f * (64.0f * static_cast<float>(b) + 32.5f));
    for (size_t i = 0; i < x.size(); ++i) REQUIRE(pairs[i] == x[i] + x[i ^ 1]);
  }
  emulator::set_order(0);
  launch({"nothing", 0, 64}, places_kernel, nullptr);
}

TEST_CASE("the emulator's order is its seed's") {
  const auto orders = [](uint64_t seed) {
    std::vector<int64_t> blocks, lanes;
    emulator::set_order(seed);
    launch({"order", 20, 32}, order_kernel, &blocks);
    launch({"lane_order", 1, 64}, lane_order_kernel, &lanes);
    emulator::set_order(0);
    return std::pair(blocks, lanes);
  };
  std::vector<int64_t> blocks(20), lanes(64);
  std::iota(blocks.begin(), blocks.end(), 0);
  std::iota(lanes.begin(), lanes.end(), 0);
  CHECK(orders(0) == std::pair(blocks, lanes));
  CHECK(orders(1) == orders(1));
  CHECK(orders(1).first != orders(2).first);
  CHECK(orders(1).second != orders(2).second);
  CHECK(std::is_permutation(blocks.begin(), blocks.end(), orders(1).first.begin()));
  CHECK(std::is_permutation(lanes.begin(), lanes.end(), orders(1).second.begin()));
}

TEST_CASE("the emulator names who misses a barrier or a shuffle, and where") {
  using Catch::Contains;
  const auto here = Contains("emulator_test.cpp:");
  CHECK_THAT(fault_of(returns_early_kernel), Contains("planted: block 0 of 2, thread 63 waits at the barrier of ") &&
                                                 here && Contains(", but thread 5 has returned"));
  CHECK_THAT(fault_of(two_barriers_kernel),
             Contains("waits at the barrier of ") && here && Contains("but thread 0 at the barrier of "));
  CHECK_THAT(fault_of(barrier_in_warp_kernel), Contains("waits at the warp operation of ") && here &&
                                                   Contains("but thread 3 of its warp waits at the barrier of"));
  CHECK_THAT(fault_of(returns_before_shuffle_kernel),
             Contains("waits at the warp operation of ") && here && Contains("but thread 40 of its warp has returned"));
  CHECK_THAT(fault_of(two_shuffles_kernel),
             Contains("waits at the warp operation of ") && here && Contains("of its warp at the warp operation of "));
  CHECK_THAT(fault_of(lane_beyond_kernel), Contains("takes from lane 32 in the warp operation of ") && here);
  CHECK_THAT(fault_of(launches_kernel), Contains("inner: launched from inside a kernel"));
  CHECK_THAT(fault_of(large_shared_kernel), Contains("49160 bytes of shared memory, of 49152"));
  CHECK_THROWS_AS(launch({"shape", 1, 33}, throws_kernel, 0), Fault);
  CHECK_THROWS_AS(launch({"shape", 1, 0}, throws_kernel, 0), Fault);
  CHECK_THROWS_AS(launch({"shape", 1, 2048}, throws_kernel, 0), Fault);
  CHECK_THROWS_AS(launch({"shape", int64_t{1} << 31, 32}, throws_kernel, 0), Fault);
}

TEST_CASE("the emulator passes on what a kernel throws, and goes on afterwards") {
  CHECK_THROWS_WITH(launch({"throws", 2, 64}, throws_kernel, 0), "seven");
  // Lanes that were stopped between two shuffles start the next kernel alike.
  CHECK_THROWS_AS(launch({"throws", 1, 64}, throws_between_shuffles_kernel, 0), std::invalid_argument);
  std::vector<float> x(64), sums(1), pairs(64);
  std::iota(x.begin(), x.end(), 1.0f);
  launch({"sums", 1, 64}, sums_kernel, x.data(), sums.data(), pairs.data());
  CHECK(sums[0] == 2080);
  for (size_t i = 0; i < 64; ++i) CHECK(pairs[i] == x[i] + x[i ^ 1]);
}

TEST_CASE("shared memory of a block starts as signalling NaN") {
  std::vector<float> floats(120);
  launch({"reads_shared", 3, 32}, reads_shared_kernel<float>, floats.data());
  for (const float x : floats) REQUIRE(std::isnan(x));
  std::vector<double> doubles(120);
  launch({"reads_shared", 3, 32}, reads_shared_kernel<double>, doubles.data());
  for (const double x : doubles) REQUIRE(std::isnan(x));
  // Integers have no NaN: what they start as differs between orders.
  std::vector<int32_t> first(40), second(40);
  launch({"reads_shared", 1, 32}, reads_shared_kernel<int32_t>, first.data());
  emulator::set_order(1);
  launch({"reads_shared", 1, 32}, reads_shared_kernel<int32_t>, second.data());
  emulator::set_order(0);
  for (size_t i = 0; i < first.size(); ++i) CHECK(first[i] != second[i]);
}

TEST_CASE("two host threads emulate at once") {
  std::vector<float> x(640, 1.0f), sums[2], pairs(640), more(640);
  const auto run = [&](std::vector<float>& out, std::vector<float>& pairs_out) {
    out.resize(10);
    launch({"sums", 10, 64}, sums_kernel, x.data(), out.data(), pairs_out.data());
  };
  std::thread other([&] { run(sums[0], pairs); });
  run(sums[1], more);
  other.join();
  CHECK(sums[0] == std::vector<float>(10, 64.0f));
  CHECK(sums[0] == sums[1]);
}

TEST_CASE("emulated memory is no number until it is written") {
  auto* values = static_cast<float*>(allocate(3 * sizeof(float)));
  for (int i = 0; i < 3; ++i) CHECK(std::isnan(values[i]));
  const std::vector<float> in{1, 2, 3};
  std::vector<float> out(3);
  copy_in(values, in.data(), 12);
  copy_out(out.data(), values, 12);
  CHECK(in == out);
  release(values);
  release(allocate(0));
  synchronize();
}

}  // namespace motley::kernels::emulated
