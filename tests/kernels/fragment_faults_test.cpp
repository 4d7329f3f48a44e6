// What a kernel with fragments and asynchronous copies can do wrong, planted in copies of one that is right: the
// emulator sees each.
#include <catch2/catch.hpp>
#include <vector>

#include "kernels/cuda/fragments.h"
#include "tests/kernels/values.h"

namespace motley::kernels::emulated {
namespace {

enum class Plant : uint8_t {
  none,
  wrong_lane,
  missing_wait,
  late_wait,
  missing_barrier,
  missing_barrier_before_reuse,
  uninitialized_shared,
  race_between_blocks,
};

constexpr int kStages = 2, kChunk = 8;  // elements of one copy

/// C [16, 16] of a block = A [16, depth] B [16, depth]^T, depth a multiple of 8, and the sum of its first element over
/// all blocks: two warps of eight columns each, the first loads A, the second B.
template <Plant kPlant>
GPU_KERNEL void small_product_kernel(const bf16* a, const bf16* b, float* c, float* total, int depth) {
  GPU_SHARED(bf16, tiles, kStages * 2 * 16 * 16);
  const int lane = thread() % kWarp, warp = thread() / kWarp, steps = (depth + 15) / 16;
  const auto tile = [&](int step, int operand) { return tiles + (step % kStages * 2 + operand) * 16 * 16; };
  const auto load = [&](int step) {
    const int row = lane / 2, k = step * 16 + lane % 2 * kChunk;
    const bf16* from = (warp == 0 ? a : b) + (block() * 16 + row) * depth + k;
    if (kPlant == Plant::uninitialized_shared && k >= depth) return;
    copy_async(tile(step, warp) + row * 16 + lane % 2 * kChunk, k < depth ? from : a, k < depth ? 16 : 0);
  };
  float sums[4] = {};
  load(0);
  commit_copies();
  for (int step = 0; step < steps; ++step) {
    if (step + 1 < steps) load(step + 1);
    commit_copies();
    if (kPlant == Plant::late_wait)
      wait_for_copies<2>();
    else if (kPlant != Plant::missing_wait)
      wait_for_copies<1>();
    if (kPlant != Plant::missing_barrier) barrier();
    uint32_t x[4], y[2];
    const int row = kPlant == Plant::wrong_lane ? (lane + 1) % 16 : lane % 16;
    load_fragments<false>(x, tile(step, 0) + row * 16 + lane / 16 * 8);
    load_fragments<false>(y, tile(step, 1) + (warp * 8 + lane % 8) * 16 + lane / 8 % 2 * 8);
    multiply_fragments<Operand::bf16>(sums, x, y);
    if (kPlant != Plant::missing_barrier_before_reuse) barrier();
  }
  if (kPlant == Plant::late_wait) wait_for_copies<0>();
  for (int i = 0; i < 4; ++i)
    c[block() * 256 + (lane / 4 + i / 2 * 8) * 16 + warp * 8 + lane % 4 * 2 + i % 2] = sums[i];
  if (thread() == 0 && kPlant == Plant::race_between_blocks) atomic_add(total, sums[0]);
  if (thread() == 0 && kPlant != Plant::race_between_blocks) total[1 + block()] = sums[0];
}

constexpr int kBlocks = 5;

template <Plant kPlant>
std::vector<float> run(uint64_t order, int depth) {
  const auto a = values<bf16>(kBlocks * 16 * depth, 1), b = values<bf16>(kBlocks * 16 * depth, 2);
  const size_t bytes = a.size() * sizeof(bf16);
  auto* const on_a = static_cast<bf16*>(allocate(bytes));
  auto* const on_b = static_cast<bf16*>(allocate(bytes));
  copy_in(on_a, a.data(), bytes);
  copy_in(on_b, b.data(), bytes);
  std::vector<float> out(kBlocks * 256 + 1 + kBlocks);
  emulator::set_order(order);
  std::string fault;
  try {
    launch({"small_product", kBlocks, 64}, small_product_kernel<kPlant>, on_a, on_b, out.data(),
           out.data() + kBlocks * 256, depth);
  } catch (const emulator::Fault& error) {
    fault = error.what();
  }
  emulator::set_order(0);
  release(on_a);
  release(on_b);
  if (!fault.empty()) throw emulator::Fault(fault);
  return out;
}

/// How a plant shows: by the emulator's word, by results that change with the order, or by wrong results. Empty: it
/// does not.
template <Plant kPlant>
std::string caught(int depth) {
  std::vector<std::vector<float>> results;
  for (const uint64_t order : {0, 1, 2, 3}) {
    try {
      results.push_back(run<kPlant>(order, depth));
    } catch (const emulator::Fault& fault) {
      return fault.what();
    }
  }
  for (const auto& result : results)
    if (!same_bits(result, results[0])) return "order";
  return same_bits(results[0], run<Plant::none>(0, depth)) ? "" : "result";
}

}  // namespace

TEST_CASE("a kernel with fragments that is right shows nothing, and multiplies") {
  for (const int depth : {8, 16, 24, 40, 80}) {
    CHECK(caught<Plant::none>(depth) == "");
    const auto a = values<bf16>(kBlocks * 16 * depth, 1), b = values<bf16>(kBlocks * 16 * depth, 2);
    const std::vector<float> c = run<Plant::none>(1, depth);
    for (int i = 0; i < kBlocks * 256; ++i) {
      double sum = 0, size = 0;
      for (int k = 0; k < depth; ++k) {
        const double term = real(a[static_cast<size_t>(i / 16 * depth + k)]) *
                            real(b[static_cast<size_t>((i / 256 * 16 + i % 16) * depth + k)]);
        sum += term;
        size += std::fabs(term);
      }
      // Every step of 16 loses 17 aligned terms and the result's own.
      REQUIRE(std::fabs(c[static_cast<size_t>(i)] - sum) <= (depth + 15) / 16 * (17 * 0x1p-24 + 0x1p-23) * size);
    }
  }
}

TEST_CASE("the emulator catches what is planted among fragments") {
  const int depth = 72;
  CHECK(caught<Plant::wrong_lane>(depth) == "result");
  CHECK_THAT(caught<Plant::missing_wait>(depth), Catch::Contains("copies that it did not wait for"));
  CHECK(caught<Plant::late_wait>(depth) != "");
  CHECK(caught<Plant::missing_barrier>(depth) != "");
  CHECK(caught<Plant::missing_barrier_before_reuse>(depth) != "");
  CHECK(caught<Plant::uninitialized_shared>(depth) == "result");
  CHECK(caught<Plant::race_between_blocks>(depth) == "order");
}

}  // namespace motley::kernels::emulated
