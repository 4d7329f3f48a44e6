#include "tests/kernels/matmul_case.h"

namespace motley::kernels {
namespace {

class Table {
 public:
  explicit Table(std::vector<DeviceCase>& cases) : cases_(cases) {}
  void add(const std::string& type, const std::string& shape, MatmulCase in) {
    const auto shared = std::make_shared<const MatmulCase>(std::move(in));
    cases_.push_back({"matmul", type, shape,
                      [shared](const Device& d) {
                        return run_product(*shared, d,
                                           [&](const MatmulArgs& args) { MOTLEY_DISPATCH(d, matmul, args); });
                      },
                      // A chain rounds K times, partial sums and scales twice a tile, the factors three times; the
                      // reference errs as much where C is fp64.
                      [shared](const Outputs& o) {
                        return check_product(*shared, o, 2 * static_cast<double>(shared->a.view.cols + 8));
                      }});
  }

 private:
  std::vector<DeviceCase>& cases_;
};

constexpr DType kSmallTypes[] = {DType::f32, DType::bf16, DType::f16};

/// A tile is 64 x 64 outputs, 16 deep.
void add_shapes(Table& table) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    for (const Shape& s :
         {Shape{0, 3, 4}, {3, 0, 4}, {3, 2, 0}, {1, 1, 1}, {5, 65, 15}, {63, 2, 16}, {64, 64, 17}, {65, 130, 33}})
      table.add(dtype_name(dtype), s.text(), case_of(s, dtype, dtype, dtype));
    const Shape s{9, 11, 40};
    table.add(dtype_name(dtype), s.text() + " special", case_of(s, dtype, dtype, dtype, true));
    MatmulCase strided = case_of(s, dtype, dtype, dtype);
    strided.a = HostMatrix(dtype, s.m, s.k, 1, 2, true);
    strided.b = HostMatrix(dtype, s.n, s.k, 2, 1, true);
    strided.c = HostMatrix(dtype, s.m, s.n, 3, 4, true);
    table.add(dtype_name(dtype), s.text() + " transposed", strided);
    strided.a = HostMatrix(dtype, s.m, s.k, 1, 7);
    strided.b = HostMatrix(dtype, s.n, s.k, 2, 5);
    strided.k_tile = 7;
    table.add(dtype_name(dtype), s.text() + " gaps, tiles of 7", strided);
  }
  for (const DType a : kSmallTypes)
    for (const DType b : kSmallTypes)
      for (const DType c : kSmallTypes)
        if (a != b || b != c)
          table.add("mixed", std::string(dtype_name(a)) + " " + dtype_name(b) + " " + dtype_name(c),
                    case_of({3, 17, 21}, a, b, c));
}

void add_tiles(Table& table) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const int64_t k_tile : {0, 1, 16, 24, 100}) {
      const Shape s{4, 19, 50};
      MatmulCase in = case_of(s, dtype, dtype, dtype);
      in.k_tile = k_tile;
      in.accumulate = true;
      table.add(dtype_name(dtype), s.text() + " accumulated, tiles of " + std::to_string(k_tile), in);
    }
    MatmulCase empty = case_of({2, 3, 0}, dtype, dtype, dtype);
    empty.accumulate = true;
    table.add(dtype_name(dtype), "[2, 3, 0] accumulated", empty);
  }
}

void add_finishes(Table& table) {
  const Shape s{3, 70, 20};
  for (const DType dtype : kSmallTypes) {
    for (int steps = 0; steps < 4; ++steps) {
      MatmulCase in = case_of(s, dtype, dtype, dtype);
      add_finish(in, s, dtype, (steps & 1) != 0, (steps & 2) != 0);
      table.add(dtype_name(dtype), s.text() + " finish " + std::to_string(steps), in);
      in.plain = false;
      if (steps == 3) in.gate = HostMatrix(dtype, s.m, s.n, 6, 0, false, true);
      if (steps == 3) table.add(dtype_name(dtype), s.text() + " finish of special values", in);
    }
  }
}

std::string form_name(const Quantization& how) {
  const char* scaling = how.scaling == Scaling::mx32 ? "mx " : how.scaling == Scaling::nv16 ? "nv " : "";
  return std::string("weights ") + scaling + std::string(format_name(how.format));
}
void add_packed(Table& table) {
  for (const Quantization& how : kPackedForms) {
    for (const Shape& s : {Shape{1, 1, 1}, {2, 16, 7}, {3, 17, 8}, {2, 70, 33}, {1, 15, 150}})
      table.add(form_name(how), s.text(), packed_case(s, how, DType::bf16, DType::bf16));
    table.add(form_name(how), "[3, 40, 70] rare", packed_case({3, 40, 70}, how, DType::f32, DType::f32, true));
    table.add(form_name(how), "[0, 5, 3]", packed_case({0, 5, 3}, how, DType::f32, DType::f32));
    table.add(form_name(how), "[2, 5, 0]", packed_case({2, 5, 0}, how, DType::f32, DType::f16));
    const Shape s{3, 40, 70};
    MatmulCase finished = packed_case(s, how, DType::f16, DType::bf16);
    add_finish(finished, s, DType::bf16, true, true);
    finished.k_tile = 32;
    table.add(form_name(how), s.text() + " finish, tiles of 32", finished);
  }
  for (const Format format : {Format::e4m3, Format::e5m2}) {
    for (const int64_t b_scale_rows : {1, 128, 200}) {
      const Shape s{3, 132, 260};
      MatmulCase in = packed_case(s, {format, Scaling::none}, DType::f32, DType::bf16);
      add_block_scales(in, s, b_scale_rows);
      add_finish(in, s, DType::bf16, false, true);
      table.add(form_name({format}), s.text() + " block scales of " + std::to_string(b_scale_rows) + " rows", in);
    }
  }
}

}  // namespace

void add_matmul_cases(std::vector<DeviceCase>& cases) {
  Table table(cases);
  add_shapes(table);
  add_tiles(table);
  add_finishes(table);
  add_packed(table);
}

}  // namespace motley::kernels
