// What a kernel can do wrong, planted in copies of one that is right: the emulator sees each.
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdio>
#include <vector>

#include "kernels/cuda/lanes.h"
#include "tests/kernels/values.h"

namespace motley::kernels::emulated {
namespace {

enum class Plant {
  none,
  missing_barrier,
  missing_barrier_before_reuse,
  early_return,
  tail_read,
  tail_write,
  wrong_lane,
  wrong_half_warp,
  uninitialized_shared,
  shared_overrun,
  race_between_blocks,
};

constexpr int kThreads = 128;

/// The sum over the block, as the kernels under kernels/cuda/ are written. `part` holds one value per warp.
template <Plant kPlant>
GPU_DEVICE float block_sum(float sum, float* part) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    const int wrong_half = kPlant == Plant::wrong_half_warp && mask == 16 ? 8 : mask;
    sum += shuffle_xor(sum, kPlant == Plant::wrong_lane && mask == 4 ? 5 : wrong_half);
  }
  if (kPlant != Plant::missing_barrier_before_reuse) barrier();
  if (thread() % kWarp == 0) part[thread() / kWarp + (kPlant == Plant::shared_overrun ? 2 : 0)] = sum;
  if (kPlant != Plant::missing_barrier) barrier();
  const int warps = threads() / kWarp + (kPlant == Plant::uninitialized_shared ? 1 : 0);
  float total = 0;
  for (int warp = 0; warp < warps; ++warp) total += part[warp];
  return total;
}

/// y = x / sum of its row, and that sum plus the sum of the quotients' squares: a block per row.
template <Plant kPlant>
GPU_KERNEL void scaled_rows_kernel(const float* x, float* y, float* sums, int64_t cols) {
  GPU_SHARED(float, part, kThreads / kWarp + 1);
  if (kPlant == Plant::early_return && thread() >= cols) return;
  const float* row = x + block() * cols;
  const int64_t read = kPlant == Plant::tail_read ? cols + 1 : cols;
  const int64_t written = kPlant == Plant::tail_write ? cols + 1 : cols;
  float sum = 0, squares = 0;
  for (int64_t c = thread(); c < read; c += threads()) sum += row[c];
  sum = block_sum<kPlant>(sum, part);
  for (int64_t c = thread(); c < written; c += threads()) {
    const float quotient = row[c < cols ? c : 0] / sum;
    y[block() * cols + c] = quotient;
    squares += quotient * quotient;
  }
  squares = block_sum<kPlant>(squares, part);
  if (thread() != 0) return;
  if (kPlant == Plant::race_between_blocks)
    sums[0] += sum + squares;
  else
    sums[block()] = sum + squares;
}

struct Result {
  std::vector<float> y, sums;
};

template <Plant kPlant>
Result run(uint64_t order, int64_t cols) {
  constexpr int64_t kRows = 24;
  const std::vector<float> in = values<float>(kRows * cols, 9, 4.0);
  auto* const x = static_cast<float*>(allocate(in.size() * sizeof(float)));
  auto* const y = static_cast<float*>(allocate(in.size() * sizeof(float)));
  auto* const sums = static_cast<float*>(allocate(kRows * sizeof(float)));
  copy_in(x, in.data(), in.size() * sizeof(float));
  Result result{std::vector<float>(in.size()), std::vector<float>(kRows)};
  copy_in(sums, result.sums.data(), kRows * sizeof(float));
  const auto free_all = [&] {
    for (float* memory : {x, y, sums}) release(memory);
  };
  emulator::set_order(order);
  try {
    launch({"scaled_rows", kRows, kThreads}, scaled_rows_kernel<kPlant>, x, y, sums, cols);
    synchronize();
  } catch (...) {
    emulator::set_order(0);
    free_all();
    throw;
  }
  emulator::set_order(0);
  copy_out(result.y.data(), y, in.size() * sizeof(float));
  copy_out(result.sums.data(), sums, kRows * sizeof(float));
  free_all();
  return result;
}

/// How a plant shows: by the emulator's word, by results that change with the order, or by results that are not those
/// of the kernel that is right. Empty: it does not.
template <Plant kPlant>
std::string caught(int64_t cols) {
  const Result right = run<Plant::none>(0, cols);
  std::vector<Result> results;
  for (const uint64_t order : {0, 1, 2}) {
    try {
      results.push_back(run<kPlant>(order, cols));
    } catch (const emulator::Fault& fault) {
      return fault.what();
    }
  }
  for (const Result& result : results)
    if (!same_bits(result.y, results[0].y) || !same_bits(result.sums, results[0].sums)) return "order";
  if (!same_bits(results[0].y, right.y) || !same_bits(results[0].sums, right.sums)) return "result";
  return {};
}

/// The same where AddressSanitizer ends the process at the first touch: in a child.
template <Plant kPlant>
std::string caught_outside(int64_t cols) {
#if defined(__SANITIZE_ADDRESS__)
  const pid_t child = fork();
  if (child == 0) {
    if (std::freopen("/dev/null", "w", stderr) == nullptr) _exit(0);
    try {
      run<kPlant>(0, cols);
    } catch (const emulator::Fault&) {
    }
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? "" : "outside";
#else
  return caught<kPlant>(cols);
#endif
}

}  // namespace

TEST_CASE("a kernel that is right shows nothing, whatever the order") {
  for (const int64_t cols : {1, 31, 100, 128, 129, 300}) {
    CHECK(caught<Plant::none>(cols) == "");
    const Result result = run<Plant::none>(3, cols);
    const std::vector<float> x = values<float>(24 * cols, 9, 4.0);
    for (int64_t r = 0; r < 24; ++r) {
      double sum = 0, size = 0;
      for (int64_t c = 0; c < cols; ++c) {
        sum += x[r * cols + c];
        size += std::fabs(x[r * cols + c]);
      }
      // A thread adds cols / 128 terms, the tree 9 levels; the quotient rounds once more.
      const double relative = (static_cast<double>(cols) / 128 + 11) * 0x1p-24 * size / std::fabs(sum);
      for (int64_t c = 0; c < cols; ++c) {
        const double want = x[r * cols + c] / sum;
        REQUIRE(std::fabs(result.y[r * cols + c] - want) <= 2 * relative * std::fabs(want));
      }
    }
  }
}

TEST_CASE("the emulator catches what is planted") {
  const int64_t cols = 100;
  CHECK(caught<Plant::missing_barrier>(cols) != "");
  CHECK(caught<Plant::missing_barrier_before_reuse>(cols) == "order");
  CHECK_THAT(caught<Plant::early_return>(cols), Catch::Contains("has returned"));
  CHECK(caught<Plant::wrong_lane>(cols) != "");
  CHECK(caught<Plant::wrong_half_warp>(cols) != "");
  CHECK(caught<Plant::uninitialized_shared>(cols) == "result");
  CHECK(caught<Plant::race_between_blocks>(cols) == "order");
  CHECK(caught_outside<Plant::tail_read>(cols) != "");
  CHECK(caught_outside<Plant::tail_write>(cols) != "");
  CHECK(caught_outside<Plant::shared_overrun>(cols) != "");
#if !defined(__SANITIZE_ADDRESS__)
  CHECK_THAT(caught<Plant::tail_write>(1), Catch::Contains("a store outside a buffer of "));
  CHECK_THAT(caught<Plant::shared_overrun>(cols), Catch::Contains("outside a shared array of 20 bytes"));
#endif
}

}  // namespace motley::kernels::emulated
