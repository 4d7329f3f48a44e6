// wgmma as kernels/cuda/warpgroup.h states it, against the PTX ISA's documented layouts: descriptors bit by bit, the
// swizzle, and a product of a warpgroup from operands placed one element at a time.
#include "kernels/cuda/warpgroup.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "kernels/cuda/unit_tiles.h"
#include "kernels/device_graph.h"
#include "kernels/device_memory.h"
#include "kernels/device_stream.h"
#include "tests/kernels/matmul_case.h"

namespace motley::kernels::emulated {
namespace {

constexpr int kRows = 128, kDepth = 64;  // of B, a block of 128 bytes to a row

/// a [64, 64], b [128, 64], c [64, 128]: four steps of 16.
GPU_KERNEL void warpgroup_kernel(const bf16* a, const bf16* b, float* c) {
  GPU_DYNAMIC_SHARED(unaligned);
  unsigned char* const memory = swizzle_aligned(unaligned);
  for (int i = thread(); i < kRows * kDepth; i += threads()) {
    const int row = i / kDepth, k = i % kDepth, chunk = k / 8 ^ row % 8;
    reinterpret_cast<bf16*>(memory + row / 8 * 1024 + row % 8 * 128 + chunk * 16)[k % 8] = b[i];
  }
  barrier();
  const int warp = thread() / kWarp, g = thread() % kWarp / 4, t = thread() % 4;
  float sums[16][4] = {};
  for (int step = 0; step < 4; ++step) {
    uint32_t x[4] = {};
    for (int j = 0; j < 4; ++j)
      for (int e = 0; e < 2; ++e)
        x[j] |= uint32_t{a[(16 * warp + g + 8 * (j % 2)) * kDepth + 16 * step + 2 * t + e + 8 * (j / 2)].bits}
                << 16 * e;
    multiply_warpgroup<Operand::bf16>(sums, x, advanced(swizzled_descriptor(shared_address(memory)), 16 * step));
  }
  for (int j = 0; j < 16; ++j)
    for (int e = 0; e < 4; ++e) c[(16 * warp + g + e / 2 * 8) * kRows + 8 * j + 2 * t + e % 2] = sums[j][e];
}
GPU_KERNEL void beyond_kernel(int) {
  GPU_DYNAMIC_SHARED(memory);
  float sums[1][4] = {};
  multiply_warpgroup<Operand::bf16>(sums, {}, swizzled_descriptor(shared_address(memory) + 4096));
}

/// Sums as those of another device, for its life.
struct OtherWarpgroups {
  explicit OtherWarpgroups(emulator::UnitWidth width) { emulator::warpgroup_unit = width; }
  ~OtherWarpgroups() { emulator::warpgroup_unit = emulator::kWideUnit; }
  OtherWarpgroups(const OtherWarpgroups&) = delete;
  OtherWarpgroups& operator=(const OtherWarpgroups&) = delete;
};
const std::string kOtherBits =
    "[1-9][0-9]* bf16 and [1-9][0-9]* fp16 sums of 16384 have other bits than those of mma.sync";

}  // namespace

TEST_CASE("a matrix descriptor has the PTX ISA's fields") {
  const auto field = [](uint64_t descriptor, int low, int high) {
    return descriptor >> low & ((uint64_t{1} << (high - low + 1)) - 1);
  };
  for (const uint32_t address : {0u, 0x400u, 0x18c00u, 0x3fc00u}) {
    const uint64_t d = swizzled_descriptor(address);
    CHECK(field(d, 0, 13) == address / 16);
    CHECK(field(d, 14, 15) == 0);
    CHECK(field(d, 32, 45) == 1024 / 16);  // from eight rows to the next
    CHECK(field(d, 46, 61) == 0);          // the pattern begins at a multiple of 1024
    CHECK(field(d, 62, 63) == 1);          // 128 bytes
    CHECK(advanced(d, 48) == d + 6);       // 48 columns of two bytes
  }
  CHECK(swizzled_descriptor(0x2400) == 0x4000004000010240u);
}

TEST_CASE("a tile of 64 columns is swizzled as wgmma reads it") {
  using Tile = UnitTile<kRows, kDepth>;
  const uint32_t base = 0x800;
  for (int row = 0; row < kRows; ++row)
    for (int k = 0; k < kDepth; k += 8)
      REQUIRE(described_address(advanced(swizzled_descriptor(base), k / 16 * 16), row, k % 16) ==
              base + static_cast<uint32_t>(Tile::deep_at(row, k / 8)));
}

TEST_CASE("multiply_warpgroup is a product") {
  const auto a = values<bf16>(64 * kDepth, 1), b = values<bf16>(kRows * kDepth, 2);
  std::vector<float> c(64 * kRows);
  for (const uint64_t order : {0, 1}) {
    emulator::set_order(order);
    launch({"warpgroup", 1, 128, kRows * 128 + 1024}, warpgroup_kernel, a.data(), b.data(), c.data());
    for (int i = 0; i < 64 * kRows; ++i) {
      double want = 0, size = 0;
      for (int k = 0; k < kDepth; ++k) {
        const double term = static_cast<double>(static_cast<float>(a[static_cast<size_t>(i / kRows * kDepth + k)])) *
                            static_cast<float>(b[static_cast<size_t>(i % kRows * kDepth + k)]);
        want += term;
        size += std::fabs(term);
      }
      REQUIRE(std::fabs(c[static_cast<size_t>(i)] - want) <= 5 * 0x1p-19 * size);
    }
  }
  emulator::set_order(0);
  CHECK_THROWS_WITH(launch({"beyond", 1, 32, 4096}, beyond_kernel, 0), Catch::Contains("outside shared memory"));
}

TEST_CASE(
    "wide products move to warpgroups where these have the bits of mma.sync, as the emulated ones have, and nowhere "
    "else") {
  const MatmulCase in = case_of({66, 8, 72}, DType::bf16, DType::bf16, DType::f32);  // more rows than medium tiles have
  const auto product_by = [&](UnitTiling tiling) {
    return run_product(in, {DeviceKind::emulated}, [&](const MatmulArgs& args) { matmul_units(args, tiling); });
  };
  const Outputs wide = product_by(UnitTiling::wide);
  CHECK(warpgroup_refusal() == "");
  CHECK(difference(product_by(UnitTiling::automatic), wide) == "");
  for (const emulator::UnitWidth width :
       {emulator::UnitWidth{24, 22}, {25, 23}}) {  // a bit less of sums, one more of terms
    const OtherWarpgroups other(width);
    CHECK_THAT(warpgroup_refusal(), Catch::Matches(kOtherBits));
    CHECK(difference(product_by(UnitTiling::warpgroup), wide) != "");
    CHECK(difference(product_by(UnitTiling::automatic), wide) == "");
  }
}

TEST_CASE("warpgroups are not asked for their bits while a graph is captured, and later") {
  const OtherWarpgroups never_asked({23, 23});
  const Device device{DeviceKind::emulated};
  const Stream stream(device);
  const StreamScope scope(stream);
  GraphMemory memory(device);
  std::string refusal;
  const Graph graph(device, memory, [&] { refusal = warpgroup_refusal(); });
  CHECK(refusal == "not checked yet, which waits, and a captured graph may not");
  CHECK_THAT(warpgroup_refusal(), Catch::Matches(kOtherBits));
}

}  // namespace motley::kernels::emulated
