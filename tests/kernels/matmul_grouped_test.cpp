// Grouped products against plain ones: every row has the bits of its group's own product, on every body.
#include <catch2/catch.hpp>
#include <cstring>

#include "tests/kernels/grouped_case.h"
#include "tests/kernels/property.h"

namespace motley::kernels {
namespace {

constexpr Device kCpu{DeviceKind::cpu}, kEmulated{DeviceKind::emulated};

/// `grouped` of all groups against `plain` of each.
template <class Grouped, class Plain>
void check_groups(const std::vector<MatmulCase>& groups, const Device& device, const Grouped& grouped,
                  const Plain& plain) {
  const Outputs all = run_grouped(groups, device, grouped);
  for (size_t g = 0; g < groups.size(); ++g) {
    INFO("group " << g << " of " << groups.size() << ", " << groups[g].a.view.rows << " rows");
    REQUIRE(output_of_group(groups, g, all)[0].bytes == run_product(groups[g], device, plain)[0].bytes);
  }
}

std::vector<MatmulCase> random_groups(Values& draw) {
  std::vector<int64_t> rows;
  for (int64_t g = spread(draw, 1, 9); g > 0; --g) rows.push_back(chance(draw, 3) ? 0 : spread(draw, 1, 20));
  const int64_t outputs = spread(draw, 1, 40), inputs = spread(draw, 1, 90);
  const Quantization how = pick(draw, std::vector<Quantization>(std::begin(kPackedForms), std::end(kPackedForms)));
  if (how.format == Format::fp32 || how.format == Format::fp16)
    return grouped_cases(rows, outputs, inputs, DType::bf16, DType::f32);
  std::vector<MatmulCase> groups = grouped_cases(rows, outputs, inputs, DType::bf16, DType::bf16, &how);
  const bool cut = chance(draw, 3);
  for (MatmulCase& in : groups) in.k_tile = cut ? 32 : 0;
  return groups;
}

}  // namespace

TEST_CASE("matmul_grouped: a row is the row of its group's product", "[property]") {
  for_random_cases(6, [](Values& draw) {
    const std::vector<MatmulCase> groups = random_groups(draw);
    check_groups(groups, kCpu, &cpu::matmul_grouped, &cpu::matmul);
    check_groups(groups, kEmulated, &emulated::matmul_grouped, &emulated::matmul);
    const UnitTiling tiling = pick(draw, std::vector<UnitTiling>{UnitTiling::automatic, UnitTiling::few_rows,
                                                                 UnitTiling::medium, UnitTiling::wide});
    check_groups(
        groups, kEmulated, [&](const GroupedMatmulArgs& args) { emulated::matmul_grouped_units(args, tiling); },
        [](const MatmulArgs& args) { emulated::matmul_units(args); });
  });
}

TEST_CASE("matmul_grouped: weights that lie by columns, in groups that begin anywhere") {
  const int64_t inputs = 24, rows[] = {3, 0, 6, 1}, groups = 4;
  for (const int64_t outputs : {8, 5}) {
    const int64_t m = 10, n = outputs * groups;
    // Transposed, at multiples of eight: copied by 16 bytes where a group begins at one.
    const HostMatrix a(DType::bf16, m, inputs, 1, 6, true), b(DType::bf16, n, inputs, 2, (8 - n % 8) % 8, true);
    const HostMatrix c(DType::f32, m, outputs, 3);
    MatmulCase all;
    all.a = a;
    all.b = b;
    all.c = c;
    std::vector<int64_t> offsets{0};
    for (const int64_t count : rows) offsets.push_back(offsets.back() + count);
    const OnDevice<int64_t> on_device(kEmulated, offsets);
    const Outputs got = run_product(all, kEmulated, [&](const MatmulArgs& args) {
      emulated::matmul_grouped_units({args, groups, on_device.data()});
    });
    const auto sums = elements<float>(got[0]);
    for (int64_t g = 0; g < groups; ++g) {
      for (int64_t r = offsets[static_cast<size_t>(g)]; r < offsets[static_cast<size_t>(g) + 1]; ++r) {
        for (int64_t col = 0; col < outputs; ++col) {
          double want = 0, size = 0;
          for (int64_t k = 0; k < inputs; ++k) {
            want += a(r, k) * b(g * outputs + col, k);
            size += std::fabs(a(r, k) * b(g * outputs + col, k));
          }
          REQUIRE(std::fabs(sums[static_cast<size_t>(r * outputs + col)] - want) <= 3 * 0x1p-19 * size);
        }
      }
    }
  }
}

TEST_CASE("matmul_grouped: what it does not take is refused") {
  GroupedMatmulArgs args;
  CHECK_THROWS_WITH(emulated::matmul_grouped_units(args),
                    "matmul_grouped_units: bf16 or fp16 rows by rows of the same type or by weights that are exact in "
                    "it, k_tile a multiple of 16");
  args.all.a.dtype = args.all.b.dtype = DType::bf16;
  CHECK_NOTHROW(emulated::matmul_grouped_units(args));  // no groups
  CHECK_THROWS_WITH(emulated::matmul_grouped_units(args, UnitTiling::warpgroup),
                    "matmul_grouped_units: there are no grouped products on warpgroups");
  args.all.a.dtype = DType::f64;
  CHECK_THROWS_WITH(emulated::matmul_grouped(args), "matmul: float64 mixed with another type");
  CHECK_THROWS_WITH(copied_to(kEmulated, std::span<const PackedMatrix>()), "grouped weights: there is no matrix");
  std::vector<PackedMatrix> two(2);
  two[1].cols = 3;
  CHECK_THROWS_WITH(copied_to(kEmulated, two), "grouped weights: the matrices differ in shape or form");
}

}  // namespace motley::kernels
