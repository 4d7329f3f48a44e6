#include "tests/kernels/matmul_case.h"

namespace motley::kernels {
namespace {

void multiply_on_units(const Device& device, const MatmulArgs& args, UnitTiling tiling) {
  if (device.kind == DeviceKind::cpu) return cpu::matmul(args);
  if (device.kind == DeviceKind::cuda) return cuda::matmul_units(args, tiling);
  emulated::matmul_units(args, tiling);
}

class Table {
 public:
  explicit Table(std::vector<DeviceCase>& cases) : cases_(cases) {}
  void add(const std::string& type, const std::string& shape, MatmulCase in, UnitTiling tiling = UnitTiling::few_rows) {
    const auto shared = std::make_shared<const MatmulCase>(std::move(in));
    cases_.push_back({"matmul_units", type, shape,
                      [shared, tiling](const Device& d) {
                        return run_product(*shared, d,
                                           [&](const MatmulArgs& args) { multiply_on_units(d, args, tiling); });
                      },
                      // The bound of kernels/matmul.h, and what the finish and partial sums round.
                      [shared](const Outputs& o) {
                        return check_product(*shared, o, 2 * static_cast<double>(shared->a.view.cols + 16) + 8);
                      },
                      false, tiling == UnitTiling::warpgroup ? 90 : 0});
  }

 private:
  std::vector<DeviceCase>& cases_;
};

constexpr DType kHalves[] = {DType::bf16, DType::f16};

/// Tiles are 16 x 32 outputs 128 deep, 64 x 64 and 128 x 128 outputs 64 deep; three or four of them are under way.
void add_shapes(Table& table) {
  struct Tiled {
    Shape shape;
    UnitTiling tiling = UnitTiling::few_rows;
  };
  for (const DType dtype : kHalves) {
    const char* name = dtype_name(dtype);
    for (const Tiled& t : {Tiled{{0, 3, 8}},
                           {{3, 0, 8}},
                           {{2, 3, 0}},
                           {{1, 1, 1}},
                           {{16, 32, 128}},
                           {{17, 33, 24}},
                           {{3, 40, 129}},
                           {{2, 5, 776}},
                           {{65, 9, 80}, UnitTiling::medium},
                           {{5, 130, 264}, UnitTiling::wide},
                           {{5, 130, 264}, UnitTiling::warpgroup},
                           {{129, 3, 136}, UnitTiling::warpgroup},
                           {{5, 7, 16}, UnitTiling::automatic}})
      table.add(name, t.shape.text() + " tiling " + std::to_string(static_cast<int>(t.tiling)),
                case_of(t.shape, dtype, dtype, dtype), t.tiling);
    const Shape s{24, 40, 72};
    table.add(name, s.text() + " special", case_of(s, dtype, dtype, DType::f32, true));
    for (const int64_t gap : {0, 3}) {  // 3: copied element by element
      MatmulCase turned = case_of(s, dtype, dtype, dtype);
      turned.a = HostMatrix(dtype, s.m, s.k, 1, gap, true);
      turned.b = HostMatrix(dtype, s.n, s.k, 2, gap, true);
      turned.c = HostMatrix(dtype, s.m, s.n, 3, 4, true);
      table.add(name, s.text() + " transposed, gap " + std::to_string(gap), turned);
      table.add(name, s.text() + " transposed, gap " + std::to_string(gap) + ", warpgroup", turned,
                UnitTiling::warpgroup);
    }
    const Shape odd{10, 21, 37};  // rows side by side, and no multiple of a copy
    MatmulCase flat = case_of(odd, dtype, dtype, dtype);
    flat.a = HostMatrix(dtype, odd.m, odd.k, 1, 6, true);
    flat.b = HostMatrix(dtype, odd.n, odd.k, 2, 3, true);
    table.add(name, odd.text() + " transposed, to multiples of 8", flat);
  }
}

void add_sums(Table& table) {
  for (const DType dtype : kHalves) {
    for (const int64_t k_tile : {0, 16, 48, 400}) {
      const Shape s{6, 35, 200};
      MatmulCase in = case_of(s, dtype, dtype, DType::f32);
      in.k_tile = k_tile;
      in.accumulate = true;
      table.add(dtype_name(dtype), s.text() + " accumulated, tiles of " + std::to_string(k_tile), in);
    }
    const Shape cut{6, 35, 200};
    MatmulCase in_tiles = case_of(cut, dtype, dtype, DType::f32);
    in_tiles.k_tile = 64;
    in_tiles.accumulate = true;
    table.add(dtype_name(dtype), cut.text() + " accumulated, warpgroup", in_tiles, UnitTiling::warpgroup);
    const Shape s{3, 70, 40};
    for (const DType out : {DType::f32, dtype}) {
      MatmulCase in = case_of(s, dtype, dtype, out);
      add_finish(in, s, out, true, true);
      table.add(dtype_name(dtype), s.text() + " finish in " + dtype_name(out), in);
      table.add(dtype_name(dtype), s.text() + " finish in " + dtype_name(out) + ", warpgroup", in,
                UnitTiling::warpgroup);
    }
  }
}

std::string form_name(const Quantization& how) {
  const char* scaling = how.scaling == Scaling::mx32 ? "mx " : how.scaling == Scaling::nv16 ? "nv " : "";
  return std::string("weights ") + scaling + std::string(format_name(how.format));
}
void add_packed(Table& table) {
  for (const Quantization& how : kPackedForms) {
    if (how.format == Format::fp32) continue;
    const DType rows = how.format == Format::fp16 ? DType::f16 : DType::bf16;
    const std::string name = form_name(how);
    for (const Shape& s : {Shape{1, 1, 1}, {2, 16, 7}, {3, 33, 40}, {2, 70, 150}})
      table.add(name, s.text(), packed_case(s, how, rows, rows));
    table.add(name, "[9, 80, 72] tiling 2", packed_case({9, 80, 72}, how, rows, DType::f32), UnitTiling::medium);
    table.add(name, "[9, 144, 72] tiling 3", packed_case({9, 144, 72}, how, rows, DType::f32), UnitTiling::wide);
    table.add(name, "[9, 144, 72] tiling 4", packed_case({9, 144, 72}, how, rows, DType::f32), UnitTiling::warpgroup);
    table.add(name, "[3, 40, 70] rare", packed_case({3, 40, 70}, how, rows, DType::f32, true));
    table.add(name, "[0, 5, 3]", packed_case({0, 5, 3}, how, rows, DType::f32));
    table.add(name, "[2, 5, 0]", packed_case({2, 5, 0}, how, rows, rows));
    if (how.scaling != Scaling::mx32 && rows == DType::bf16 && how.format != Format::bf16)
      table.add(name, "[3, 33, 40] by fp16 rows", packed_case({3, 33, 40}, how, DType::f16, DType::f16));
  }
  for (const Format format : {Format::e4m3, Format::e5m2}) {
    const Shape s{11, 132, 300};  // rows of both halves of a fragment
    MatmulCase in = packed_case(s, {format, Scaling::none}, DType::bf16, DType::bf16);
    add_block_scales(in, s, 128);
    add_finish(in, s, DType::bf16, false, true);
    table.add(form_name({format}), s.text() + " block scales", in);
    table.add(form_name({format}), s.text() + " block scales, warpgroup", in, UnitTiling::warpgroup);
  }
}

}  // namespace

void add_matmul_units_cases(std::vector<DeviceCase>& cases) {
  Table table(cases);
  add_shapes(table);
  add_sums(table);
  add_packed(table);
}

}  // namespace motley::kernels
