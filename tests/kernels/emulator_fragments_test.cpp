// Fragments, asynchronous copies, votes and atomics of the emulator, each against a plain computation.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cuda/fragments.h"
#include "tests/kernels/values.h"

namespace motley::kernels::emulated {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <class Body>
void in_every_order(const Body& body) {
  for (const uint64_t order : {0, 1, 2}) {
    emulator::set_order(order);
    body();
  }
  emulator::set_order(0);
}
template <class... Args>
std::string fault_of(const Launch& shape, void (*kernel)(Args...), const std::type_identity_t<Args>&... args) {
  try {
    launch(shape, kernel, args...);
  } catch (const emulator::Fault& fault) {
    return fault.what();
  }
  return {};
}

// Operations of a warp.

struct WarpResults {
  int down, up, from;
  uint32_t votes;
  bool any, all;
};
GPU_KERNEL void warp_kernel(WarpResults* out) {
  const int lane = thread() % kWarp, i = thread();
  out[i] = {shuffle_down(i, 3), shuffle_up(i, 5),     shuffle_from(i, 31 - lane),
            ballot(i % 3 == 0), any_of_warp(i == 40), all_of_warp(i < 32)};
}
GPU_KERNEL void lane_beyond_kernel(int lane) { shuffle_from(1, lane); }

GPU_KERNEL void atomics_kernel(int32_t* count, float* sum, int32_t* largest, int32_t* tickets) {
  const int64_t i = block() * threads() + thread();
  tickets[i] = atomic_add(count, 1);
  atomic_add(sum, 1.0f / (1.0f + static_cast<float>(i)));
  atomic_max(largest, static_cast<int32_t>(i * 37 % 101));
}

// Asynchronous copies. What a thread sees of its own copy before and after its wait.

GPU_KERNEL void copies_kernel(const float* in, float* before, float* after, int valid) {
  GPU_SHARED(float, tile, 4 * 32);
  float* mine = tile + 4 * thread();
  for (int i = 0; i < 4; ++i) mine[i] = 7.0f;
  copy_async(mine, in + 4 * thread(), valid);
  commit_copies();
  commit_copies();
  wait_for_copies<2>();
  for (int i = 0; i < 4; ++i) before[4 * thread() + i] = mine[i];
  wait_for_copies<1>();
  for (int i = 0; i < 4; ++i) after[4 * thread() + i] = mine[i];
}
enum class CopyFault : uint8_t { none, misplaced, misaligned_source, misaligned_target, too_many, unwaited, disturbed };
template <CopyFault kFault>
GPU_KERNEL void faulty_copy_kernel(const float* in) {
  GPU_SHARED(float, tile, 8);
  float local[4] = {};
  if (thread() == 9) {
    float* target = kFault == CopyFault::misplaced ? local : tile + (kFault == CopyFault::misaligned_target ? 1 : 0);
    copy_async(target, in + (kFault == CopyFault::misaligned_source ? 1 : 0), kFault == CopyFault::too_many ? 17 : 16);
    commit_copies();
    if (kFault == CopyFault::disturbed) tile[1] = 0.0f;
    if (kFault != CopyFault::unwaited) wait_for_copies<0>();
  }
}
// Dynamic shared memory.

GPU_KERNEL void dynamic_kernel(int count, float* fresh, float* sums) {
  GPU_DYNAMIC_SHARED(memory);
  auto* numbers = reinterpret_cast<float*>(memory);
  if (thread() == 0) fresh[block()] = numbers[count - 1];
  barrier();
  for (int i = thread(); i < count; i += threads()) numbers[i] = static_cast<float>(i % 7);
  barrier();
  float sum = 0;
  for (int i = 0; thread() == 0 && i < count; ++i) sum += numbers[i];
  if (thread() == 0) sums[block()] = sum;
}
GPU_KERNEL void both_shared_kernel(int) {
  GPU_DYNAMIC_SHARED(memory);
  GPU_SHARED(double, fixed, 6 * 1024);
  memory[0] = 1;
  fixed[0] = 1;
}
GPU_KERNEL void dynamic_overrun_kernel(int bytes) {
  GPU_DYNAMIC_SHARED(memory);
  memory[bytes] = 1;
}

// Fragments.

template <bool kTurned, int N>
GPU_KERNEL void load_kernel(const uint16_t* in, uint32_t* out) {
  // Rows of 8 elements lie 24 bytes of another use apart: 48 bytes from one to the next.
  GPU_SHARED(uint16_t, rows, 8 * N * 24);
  for (int i = thread(); i < 8 * N * 8; i += threads()) rows[i / 8 * 24 + i % 8] = in[i];
  barrier();
  uint32_t r[N];
  load_fragments<kTurned>(r, rows + (thread() % kWarp) % (8 * N) * 24);
  for (int i = 0; i < N; ++i) out[thread() * N + i] = r[i];
}
template <bool kTurned, int N>
void check_load() {
  std::vector<uint16_t> in(8 * N * 8);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<uint16_t>(i * 257 + 3);
  std::vector<uint32_t> out(64 * N);
  launch({"load", 1, 64}, load_kernel<kTurned, N>, in.data(), out.data());
  const auto at = [&](int matrix, int r, int c) { return uint32_t{in[static_cast<size_t>((8 * matrix + r) * 8 + c)]}; };
  for (int i = 0; i < 64; ++i) {
    const int g = i % kWarp / 4, t = i % 4;
    for (int n = 0; n < N; ++n) {
      const uint32_t want =
          kTurned ? at(n, 2 * t, g) | at(n, 2 * t + 1, g) << 16 : at(n, g, 2 * t) | at(n, g, 2 * t + 1) << 16;
      REQUIRE(out[static_cast<size_t>(i * N + n)] == want);
    }
  }
}
GPU_KERNEL void misaligned_load_kernel(int) {
  GPU_SHARED(uint16_t, rows, 32 * 8 + 8);
  uint32_t r[4];
  load_fragments<false>(r, rows + thread() * 8 + (thread() == 17 ? 1 : 0));
}
GPU_KERNEL void local_load_kernel(int) {
  alignas(16) uint16_t rows[8] = {};
  uint32_t r[1];
  load_fragments<false>(r, rows);
}

template <Operand O>
uint32_t code_of(float value) {
  if constexpr (O == Operand::bf16) return encode<Format::bf16>(value);
  if constexpr (O == Operand::fp16) return encode<Format::fp16>(value);
  if constexpr (O == Operand::tf32) return std::bit_cast<uint32_t>(value) & 0xffffe000u;
  if constexpr (O == Operand::e4m3) return encode<Format::e4m3>(value);
  if constexpr (O == Operand::e5m2) return encode<Format::e5m2>(value);
}
/// a [16, K], b [8, K] as codes, c [16, 8]: fragments filled from their documented places, one element at a time.
template <Operand O>
GPU_KERNEL void mma_kernel(const uint32_t* a, const uint32_t* b, float* c) {
  constexpr int kDepth = kFragmentDepth<O>, kBits = 32 / kPerRegister<O>;
  const int g = thread() / 4, t = thread() % 4;
  uint32_t x[4] = {}, y[2] = {};
  float sums[4];
  for (int e = 0; e < 4 * kPerRegister<O>; ++e) {
    // The PTX ISA's figures for a: elements go through the upper left, lower left, upper right, lower right quarter.
    const int quarter = e / kPerRegister<O>, row = g + (quarter == 1 || quarter == 3 ? 8 : 0);
    const int col = t * kPerRegister<O> + e % kPerRegister<O> + (quarter >= 2 ? kDepth / 2 : 0);
    x[quarter] |= a[row * kDepth + col] << e % kPerRegister<O> * kBits;
    if (quarter >= 2) continue;
    const int k = t * kPerRegister<O> + e % kPerRegister<O> + (quarter == 1 ? kDepth / 2 : 0);
    y[quarter] |= b[g * kDepth + k] << e % kPerRegister<O> * kBits;
  }
  for (int i = 0; i < 4; ++i) sums[i] = c[(g + (i < 2 ? 0 : 8)) * 8 + 2 * t + i % 2];
  multiply_fragments<O>(sums, x, y);
  for (int i = 0; i < 4; ++i) c[(g + (i < 2 ? 0 : 8)) * 8 + 2 * t + i % 2] = sums[i];
}

template <Operand O>
struct Mma {
  static constexpr int kDepth = kFragmentDepth<O>;
  std::vector<float> a, b, c;
  std::vector<uint32_t> a_codes, b_codes;

  Mma(std::vector<float> a_in, std::vector<float> b_in, std::vector<float> c_in)
      : a(std::move(a_in)), b(std::move(b_in)), c(std::move(c_in)) {
    const auto encode_all = [](std::vector<float>& values, std::vector<uint32_t>& codes) {
      for (float& value : values) {
        codes.push_back(code_of<O>(value));
        value = operand_value<O>(codes.back(), 0);
      }
    };
    encode_all(a, a_codes);
    encode_all(b, b_codes);
  }
  std::vector<float> run() const {
    std::vector<float> out = c;
    launch({"mma", 1, 32}, mma_kernel<O>, a_codes.data(), b_codes.data(), out.data());
    return out;
  }
};

template <Operand O>
void check_mma(double bound) {
  constexpr int kDepth = kFragmentDepth<O>;
  // Small integers are exact in every format, and so are their sums: any element in a wrong place shows.
  Values draw(5);
  const auto integers = [&](int count) {
    std::vector<float> out(static_cast<size_t>(count));
    for (float& x : out) x = static_cast<float>(draw.below(7) - 3);
    return out;
  };
  const Mma<O> exact(integers(16 * kDepth), integers(8 * kDepth), integers(16 * 8));
  const Mma<O> random(values<float>(16 * kDepth, 1), values<float>(8 * kDepth, 2), values<float>(16 * 8, 3));
  in_every_order([&] {
    for (const Mma<O>* mma : {&exact, &random}) {
      const std::vector<float> got = mma->run();
      for (int m = 0; m < 16; ++m) {
        for (int n = 0; n < 8; ++n) {
          double sum = mma->c[static_cast<size_t>(m * 8 + n)], size = std::fabs(sum);
          for (int k = 0; k < kDepth; ++k) {
            const double term = static_cast<double>(mma->a[static_cast<size_t>(m * kDepth + k)]) *
                                mma->b[static_cast<size_t>(n * kDepth + k)];
            sum += term;
            size += std::fabs(term);
          }
          const double error = std::fabs(got[static_cast<size_t>(m * 8 + n)] - sum);
          REQUIRE(error <= (mma == &exact ? 0 : bound * size));
        }
      }
    }
  });
}

}  // namespace

TEST_CASE("shuffles and votes of the emulator") {
  in_every_order([] {
    std::vector<WarpResults> out(64);
    launch({"warp", 1, 64}, warp_kernel, out.data());
    for (int i = 0; i < 64; ++i) {
      const int lane = i % 32, first = i - lane;
      const WarpResults& r = out[static_cast<size_t>(i)];
      REQUIRE(r.down == (lane + 3 < 32 ? i + 3 : i));
      REQUIRE(r.up == (lane >= 5 ? i - 5 : i));
      REQUIRE(r.from == first + 31 - lane);
      REQUIRE(r.votes == (first == 0 ? 0x49249249u : 0x92492492u));
      REQUIRE(r.any == (first == 32));
      REQUIRE(r.all == (first == 0));
    }
  });
  CHECK_THAT(fault_of({"beyond", 1, 32}, lane_beyond_kernel, 32), Catch::Contains("takes from lane 32"));
  CHECK_THAT(fault_of({"beyond", 1, 32}, lane_beyond_kernel, -1), Catch::Contains("takes from lane -1"));
}

TEST_CASE("atomics of the emulator count every thread, in an order that the seed permutes") {
  std::vector<float> sums;
  std::vector<std::vector<int32_t>> tickets;
  in_every_order([&] {
    int32_t count = 0, largest = -1;
    float sum = 0;
    tickets.emplace_back(7 * 64);
    launch({"atomics", 7, 64}, atomics_kernel, &count, &sum, &largest, tickets.back().data());
    CHECK(count == 7 * 64);
    CHECK(largest == 100);
    sums.push_back(sum);
    std::vector<int32_t> sorted = tickets.back();
    std::sort(sorted.begin(), sorted.end());
    for (int32_t i = 0; i < 7 * 64; ++i) REQUIRE(sorted[static_cast<size_t>(i)] == i);
  });
  CHECK(tickets[0] != tickets[1]);
  CHECK(tickets[1] != tickets[2]);
  CHECK((sums[0] != sums[1] || sums[1] != sums[2]));
}

TEST_CASE("an asynchronous copy is seen at the wait for its group, and not before") {
  const auto in = values<float>(128, 1);
  for (const int valid : {16, 8, 0}) {
    std::vector<float> before(128), after(128);
    launch({"copies", 1, 32}, copies_kernel, in.data(), before.data(), after.data(), valid);
    for (size_t i = 0; i < 128; ++i) {
      REQUIRE(std::isnan(before[i]));
      REQUIRE(after[i] == (static_cast<int>(i % 4 * 4) < valid ? in[i] : 0.0f));
    }
  }
}

TEST_CASE("the emulator refuses copies that a device would not do, or that nobody waits for") {
  using Catch::Contains;
  // Aligned to 16 bytes, as device memory is.
  auto* const memory = static_cast<float*>(allocate(64));
  const auto fault = [&](auto kernel) { return fault_of({"copies", 1, 32}, kernel, memory); };
  CHECK(fault(faulty_copy_kernel<CopyFault::none>) == "");
  CHECK_THAT(fault(faulty_copy_kernel<CopyFault::misplaced>),
             Contains("copies: block 0 of 1, thread 9 reaches outside shared memory in ") &&
                 Contains("emulator_fragments_test.cpp:"));
  CHECK_THAT(fault(faulty_copy_kernel<CopyFault::misaligned_source>), Contains("not aligned to 16 bytes"));
  CHECK_THAT(fault(faulty_copy_kernel<CopyFault::misaligned_target>), Contains("not aligned to 16 bytes"));
  CHECK_THAT(fault(faulty_copy_kernel<CopyFault::too_many>), Contains("copies 17 of 16 bytes"));
  CHECK_THAT(fault(faulty_copy_kernel<CopyFault::unwaited>),
             Contains("has returned with 1 copies that it did not wait"));
  CHECK_THAT(fault(faulty_copy_kernel<CopyFault::disturbed>), Contains("to where something was stored meanwhile"));
  release(memory);
}

TEST_CASE("dynamic shared memory starts as NaN, and passes 48 KiB but not what devices have") {
  const int count = 24 * 1024;
  in_every_order([&] {
    std::vector<float> fresh(3), sums(3);
    launch({"dynamic", 3, 64, count * 4}, dynamic_kernel, count, fresh.data(), sums.data());
    for (size_t b = 0; b < 3; ++b) {
      CHECK(std::isnan(fresh[b]));
      CHECK(sums[b] == 73725);
    }
  });
  CHECK(fault_of({"both", 1, 32, 51 * 1024}, both_shared_kernel, 0) == "");
  CHECK_THAT(fault_of({"both", 1, 32, 51 * 1024 + 1}, both_shared_kernel, 0),
             Catch::Contains("101377 bytes of shared memory, of 101376"));
  CHECK_THAT(fault_of({"both", 1, 32, 100 * 1024}, both_shared_kernel, 0),
             Catch::Contains("102400 bytes of dynamic shared memory, of 101376"));
#if !defined(__SANITIZE_ADDRESS__)
  CHECK_THAT(fault_of({"overrun", 1, 32, 64}, dynamic_overrun_kernel, 64),
             Catch::Contains("outside a shared array of 64 bytes"));
#endif
}

TEST_CASE("load_fragments places the elements of 8 x 8 matrices as ldmatrix does") {
  in_every_order([] {
    check_load<false, 1>();
    check_load<false, 2>();
    check_load<false, 4>();
    check_load<true, 1>();
    check_load<true, 2>();
    check_load<true, 4>();
  });
  CHECK_THAT(fault_of({"load", 1, 32}, misaligned_load_kernel, 0),
             Catch::Contains("thread 17 reaches an address that is not aligned to 16 bytes"));
  CHECK_THAT(fault_of({"load", 1, 32}, local_load_kernel, 0), Catch::Contains("outside shared memory"));
}

TEST_CASE("multiply_fragments is a product for every operand type") {
  // K + 1 terms lose less than 2^-aligned of the largest each, the result 2^-result.
  check_mma<Operand::bf16>(17 * 0x1p-24 + 0x1p-23);
  check_mma<Operand::fp16>(17 * 0x1p-24 + 0x1p-23);
  check_mma<Operand::tf32>(9 * 0x1p-24 + 0x1p-23);
  check_mma<Operand::e4m3>(33 * 0x1p-13 + 0x1p-13);
  check_mma<Operand::e5m2>(33 * 0x1p-13 + 0x1p-13);
}

TEST_CASE("a matrix unit truncates what lies below the largest exponent, and its sum") {
  using emulator::kWideUnit, emulator::kFp8Unit, emulator::unit_sum;
  const auto sum = [](std::vector<float> a, std::vector<float> b, float c, emulator::UnitWidth width) {
    return unit_sum(a.data(), b.data(), static_cast<int>(a.size()), c, width);
  };
  CHECK(sum({1, 0x1p-24f}, {1, 1}, 0, kWideUnit) == 1);                    // aligned, and then below the result's bits
  CHECK(sum({1, 0x1p-24f}, {1, 1}, 0x1p-24f, kWideUnit) == 1 + 0x1p-23f);  // no rounding in between
  CHECK(sum({1, 0x1p-25f, 0x1p-25f}, {1, 1, 1}, 0x1p-24f, kWideUnit) == 1);
  CHECK(sum({1, -0x1p-25f}, {1, 1}, 0, kWideUnit) == 1);  // towards zero
  CHECK(sum({1, -0x1p-24f}, {1, 1}, 0, kWideUnit) == 1 - 0x1p-24f);
  CHECK(sum({-1, -0x1p-24f}, {1, 1}, 0, kWideUnit) == -1);
  CHECK(sum({1, -1, 0x1p-24f}, {1, 1, 1}, 0, kWideUnit) == 0x1p-24f);
  CHECK(sum({1, 0x1p-13f}, {1, 1}, 0, kFp8Unit) == 1 + 0x1p-13f);
  CHECK(sum({1, 0x1p-14f, 0x1p-14f}, {1, 1, 1}, 0, kFp8Unit) == 1);
  CHECK(sum({0, 0}, {1, -0.0f}, 0, kWideUnit) == 0);
  CHECK(sum({0x1p-149f}, {1}, 0x1p-149f, kWideUnit) == 0x1p-148f);  // subnormals count
  CHECK(sum({0x1p-149f}, {0.75f}, 0, kWideUnit) == 0);
  CHECK(sum({0x1p127f, 0x1p127f}, {1, 1}, 0, kWideUnit) == kInfinity);
  CHECK(sum({kInfinity}, {1}, 5, kWideUnit) == kInfinity);
  CHECK(std::isnan(sum({kInfinity}, {0}, 5, kWideUnit)));
  CHECK(std::isnan(sum({1, kInfinity}, {1, 1}, -kInfinity, kWideUnit)));
  CHECK(std::isnan(sum({kNan}, {0}, 0, kWideUnit)));
}

}  // namespace motley::kernels::emulated
