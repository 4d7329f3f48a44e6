#include "tests/kernels/grouped_case.h"

namespace motley::kernels {
namespace {

using Groups = std::vector<MatmulCase>;

std::string check_groups(const Groups& groups, const Outputs& outputs, double steps) {
  std::string wrong;
  for (size_t g = 0; g < groups.size() && wrong.empty(); ++g) {
    wrong = check_product(groups[g], output_of_group(groups, g, outputs), steps);
    if (!wrong.empty()) wrong = "group " + std::to_string(g) + ": " + wrong;
  }
  return wrong;
}

/// Both kernels, the second where matrix units take the operands; their bounds are those of the plain products.
void add(std::vector<DeviceCase>& cases, const std::string& type, const std::string& shape, const Groups& groups,
         bool units = true) {
  const auto shared = std::make_shared<const Groups>(groups);
  const double inputs = static_cast<double>(groups[0].a.view.cols);
  cases.push_back({"matmul_grouped", type, shape,
                   [shared](const Device& d) {
                     return run_grouped(
                         *shared, d, [&](const GroupedMatmulArgs& args) { MOTLEY_DISPATCH(d, matmul_grouped, args); });
                   },
                   [shared, inputs](const Outputs& o) { return check_groups(*shared, o, 2 * (inputs + 8)); }});
  if (!units) return;
  cases.push_back({"matmul_grouped_units", type, shape,
                   [shared](const Device& d) {
                     return run_grouped(*shared, d, [&](const GroupedMatmulArgs& args) {
                       if (d.kind == DeviceKind::cpu) return cpu::matmul_grouped(args);
                       if (d.kind == DeviceKind::cuda) return cuda::matmul_grouped_units(args);
                       emulated::matmul_grouped_units(args);
                     });
                   },
                   [shared, inputs](const Outputs& o) { return check_groups(*shared, o, 2 * (inputs + 16) + 8); },
                   false});
}

}  // namespace

void add_grouped_cases(std::vector<DeviceCase>& cases) {
  const std::vector<int64_t> rows{0, 3, 1, 18, 0, 2};  // of each group
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    const bool units = dtype == DType::bf16 || dtype == DType::f16;
    const char* name = dtype_name(dtype);
    add(cases, name, "6 groups, [24, 21, 35]", grouped_cases(rows, 21, 35, dtype, dtype), units);
    add(cases, name, "1 group, [5, 9, 16]", grouped_cases({5}, 9, 16, dtype, dtype), units);
    add(cases, name, "3 groups, [0, 9, 16]", grouped_cases({0, 0, 0}, 9, 16, dtype, dtype), units);
    add(cases, name, "2 groups, [4, 0, 16]", grouped_cases({1, 3}, 0, 16, dtype, dtype), units);
    add(cases, name, "2 groups, [4, 5, 0]", grouped_cases({1, 3}, 5, 0, dtype, dtype), units);
    if (dtype == DType::f64) continue;
    Groups finished = grouped_cases({2, 0, 67}, 10, 40, dtype, dtype);  // more rows than a tile has
    for (size_t g = 0; g < finished.size(); ++g) {
      MatmulCase& in = finished[g];
      add_finish(in, {in.a.view.rows, 10, 40}, dtype, false, false, 10 * g);
      in.residual = HostMatrix(dtype, in.a.view.rows, 10, 10 * g + 7);
      in.gate = HostMatrix(dtype, in.a.view.rows, 10, 10 * g + 6);
    }
    add(cases, name, "3 groups, [69, 10, 40] finish", finished, units);
    Groups added = grouped_cases(rows, 5, 40, dtype, DType::f32);
    for (MatmulCase& in : added) {
      in.accumulate = true;
      in.k_tile = 16;
    }
    add(cases, name, "6 groups, [24, 5, 40] accumulated", added, units);
  }
  for (const Quantization& how : kPackedForms) {
    const DType dtype = how.format == Format::fp16 ? DType::f16 : DType::bf16;
    const char* scaling = how.scaling == Scaling::mx32 ? "mx " : how.scaling == Scaling::nv16 ? "nv " : "";
    add(cases, "weights " + std::string(scaling) + std::string(format_name(how.format)), "3 groups, [8, 21, 70]",
        grouped_cases({5, 1, 2}, 21, 70, dtype, dtype, &how), how.format != Format::fp32);
  }
  const Quantization fp8{Format::e4m3, Scaling::none};
  Groups scaled = grouped_cases({2, 1, 3}, 20, 150, DType::bf16, DType::bf16, &fp8);
  for (size_t g = 0; g < scaled.size(); ++g) add_block_scales(scaled[g], {scaled[g].a.view.rows, 20, 150}, 16, 10 * g);
  add(cases, "weights e4m3", "3 groups, [6, 20, 150] block scales", scaled);
}

}  // namespace motley::kernels
