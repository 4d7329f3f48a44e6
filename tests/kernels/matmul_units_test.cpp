// Products on matrix units against themselves: a row's bits depend on that row alone, whatever the tiling, the batch,
// the order of blocks and the place in memory.
#include <catch2/catch.hpp>
#include <cstring>

#include "kernels/emulator/emulator.h"
#include "kernels/product_body.h"
#include "tests/kernels/matmul_case.h"

namespace motley::kernels {
namespace {

constexpr Device kEmulated{DeviceKind::emulated};

std::vector<unsigned char> product_of(const MatmulCase& in, UnitTiling tiling) {
  return run_product(in, kEmulated, [&](const MatmulArgs& args) { emulated::matmul_units(args, tiling); })[0].bytes;
}
/// The rows of a case from `first` on, `count` of them.
MatmulCase rows_of(const MatmulCase& in, int64_t first, int64_t count) {
  MatmulCase out = in;
  const auto cut = [&](HostMatrix& m) {
    const size_t row = m.bytes.size() / static_cast<size_t>(m.view.rows);
    m.bytes.assign(m.bytes.begin() + static_cast<ptrdiff_t>(row) * first,
                   m.bytes.begin() + static_cast<ptrdiff_t>(row) * (first + count));
    m.view.rows = count;
  };
  cut(out.a);
  cut(out.c);
  return out;
}

void check_rows(const MatmulCase& in) {
  const int64_t m = in.a.view.rows;
  const std::vector<unsigned char> all = product_of(in, UnitTiling::automatic);
  const size_t row = all.size() / static_cast<size_t>(m);
  for (const UnitTiling tiling : {UnitTiling::few_rows, UnitTiling::medium, UnitTiling::wide, UnitTiling::warpgroup})
    CHECK(product_of(in, tiling) == all);
  for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 1}, {m - 1, 1}, {2, 5}, {m / 2, m - m / 2}}) {
    const std::vector<unsigned char> part = product_of(rows_of(in, first, count), UnitTiling::automatic);
    CHECK(std::memcmp(part.data(), all.data() + static_cast<size_t>(first) * row, part.size()) == 0);
  }
}

}  // namespace

TEST_CASE("matmul_units: a row has the same bits in every batch and under every tiling") {
  for (const uint64_t order : {0, 1}) {
    emulator::set_order(order);
    for (const bool special : {false, true})  // NaN and infinities stay in their rows
      check_rows(case_of({19, 35, 136}, DType::bf16, DType::bf16, DType::f32, special));
    check_rows(case_of({70, 8, 27}, DType::f16, DType::f16, DType::f16));
    check_rows(packed_case({19, 35, 136}, {Format::e2m1, Scaling::nv16}, DType::bf16, DType::bf16));
    MatmulCase cut = packed_case({19, 35, 300}, {Format::e4m3, Scaling::none}, DType::bf16, DType::f32);
    cut.k_tile = 128;
    check_rows(cut);
  }
  emulator::set_order(0);
}

TEST_CASE("matmul_units: how operands lie changes no bit") {
  const Shape s{18, 40, 72};
  const MatmulCase deep = case_of(s, DType::bf16, DType::bf16, DType::f32);
  const std::vector<unsigned char> want = product_of(deep, UnitTiling::automatic);
  for (const bool turned : {false, true}) {
    for (const int64_t gap : {0, 1, 8}) {
      MatmulCase in = deep;
      for (const auto& [to, from] : {std::pair{&in.a, &deep.a}, {&in.b, &deep.b}}) {
        const int64_t rows = from->view.rows, cols = from->view.cols;
        *to = HostMatrix(DType::bf16, rows, cols, 1, gap, turned);
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t c = 0; c < cols; ++c)
            std::memcpy(to->bytes.data() + 2 * (r * to->view.row_stride + c * to->view.col_stride),
                        from->bytes.data() + 2 * (r * cols + c), 2);
      }
      CHECK(product_of(in, UnitTiling::automatic) == want);
    }
  }
  std::vector<float> plain;
  for (int64_t r = 0; r < s.n; ++r)
    for (int64_t k = 0; k < s.k; ++k) plain.push_back(static_cast<float>(deep.b(r, k)));
  MatmulCase packed = deep;
  packed.codes = std::make_shared<const QuantizedMatrix>(quantize(plain, s.n, s.k, {Format::bf16, Scaling::none}));
  packed.packed = std::make_shared<const PackedMatrix>(pack(*packed.codes));
  CHECK(product_of(packed, UnitTiling::automatic) == want);
}

TEST_CASE("matmul_units: what matrix units lack is refused") {
  const auto args_of = [](DType a, DType b, int64_t k_tile) {
    MatmulArgs args;
    args.a.dtype = a;
    args.b.dtype = b;
    args.k_tile = k_tile;
    return args;
  };
  CHECK(fits_matrix_units(args_of(DType::bf16, DType::bf16, 0)));
  CHECK(fits_matrix_units(args_of(DType::f16, DType::f16, 32)));
  CHECK_FALSE(fits_matrix_units(args_of(DType::f16, DType::f16, 24)));
  CHECK_FALSE(fits_matrix_units(args_of(DType::bf16, DType::f16, 0)));
  CHECK_FALSE(fits_matrix_units(args_of(DType::f32, DType::f32, 0)));
  CHECK_THROWS_WITH(emulated::matmul_units(args_of(DType::f32, DType::f32, 0)),
                    "matmul_units: bf16 or fp16 rows by rows of the same type or by weights that are exact in it, "
                    "k_tile a multiple of 16");
  MatmulArgs args = args_of(DType::bf16, DType::bf16, 32);
  args.c = {&args, DType::f32, 1, 1, 1};
  args.a.rows = args.b.rows = args.a.cols = args.b.cols = 1;
  CHECK_THROWS_WITH(emulated::matmul_units(args, UnitTiling::warpgroup),
                    "matmul_units: on warpgroups k_tile is a multiple of 64");
  const uint8_t code = 0;
  for (const Quantization& how : kPackedForms) {
    MatmulArgs args = args_of(DType::bf16, DType::f32, 0);
    args.packed_codes = {&code, &code, 1, 1, how.format, how.scaling};
    CHECK(fits_matrix_units(args) == (how.format != Format::fp32 && how.format != Format::fp16));
    args.a.dtype = DType::f16;
    CHECK(fits_matrix_units(args) ==
          (how.format != Format::fp32 && how.format != Format::bf16 && how.scaling != Scaling::mx32));
    args.a.dtype = DType::f32;
    CHECK_FALSE(fits_matrix_units(args));
  }
}

TEST_CASE("matmul_units: profiles that stand for an accelerator use it on a device, plain ones keep the CPU's bits") {
  const Device gpu{DeviceKind::cuda, 0};
  const auto body = [](const char* name, const Device& device) { return product_body(*find_profile(name), device); };
  for (const char* name : {"b200-nvfp4", "h100-fp8", "h200-bf16", "b200-nvfp4-w4a4", "a100-bf16"}) {
    CHECK(body(name, gpu) == ProductBody::matrix_units);
    CHECK(body(name, kEmulated) == ProductBody::matrix_units);
    CHECK(body(name, {}) == ProductBody::chain);
  }
  for (const char* name : {"fp32", "bf16", "fp16", "fp8", "mxfp4"}) CHECK(body(name, gpu) == ProductBody::chain);
  for (const Device& device : {gpu, kEmulated, Device{}})
    CHECK(body("h100-fp8-accumulate14", device) == ProductBody::hopper_fp8);
  NumericProfile vendor = *find_profile("bf16");
  vendor.invariant = false;
  CHECK(product_body(vendor, gpu) == ProductBody::matrix_units);
  vendor.k_tile = 24;
  CHECK(product_body(vendor, gpu) == ProductBody::chain);
  vendor = *find_profile("fp32");
  vendor.invariant = false;
  CHECK(product_body(vendor, gpu) == ProductBody::chain);
  vendor = *find_profile("mxfp4");
  vendor.invariant = false;
  CHECK(unit_rows(vendor) == DType::bf16);
  CHECK(product_body(vendor, gpu) == ProductBody::matrix_units);
  vendor.activation = {Format::fp16, Scaling::none};
  CHECK(unit_rows(vendor) == DType::f16);
  CHECK(product_body(vendor, gpu) == ProductBody::chain);
}

}  // namespace motley::kernels
