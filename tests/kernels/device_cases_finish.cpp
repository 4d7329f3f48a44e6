#include "kernels/finish.h"
#include "tests/kernels/matmul_case.h"

namespace motley::kernels {
namespace {

/// The finish of sums that the CPU's product made.
void multiply_and_finish(const Device& device, const MatmulCase& in, const MatmulArgs& args) {
  MatmulCase plain = in;
  plain.c = HostMatrix(DType::f32, in.a.view.rows, in.n(), 3);
  const Outputs made = run_product(plain, {}, [&](MatmulArgs sums) {
    sums.alpha = 1;
    sums.column_factors = sums.row_factors = nullptr;
    sums.gate = sums.residual = {};
    cpu::matmul(sums);
  });
  const OnDevice<float> sums(device, elements<float>(made[0]));
  MOTLEY_DISPATCH(device, finish_sums, args, sums.data());
  device_synchronize(device);
}

}  // namespace

void add_finish_cases(std::vector<DeviceCase>& cases) {
  const auto add = [&](const Shape& s, DType dtype, const std::string& what, MatmulCase in) {
    const auto shared = std::make_shared<const MatmulCase>(std::move(in));
    cases.push_back({"finish_sums", dtype_name(dtype), s.text() + what,
                     [shared](const Device& d) {
                       return run_product(*shared, d,
                                          [&](const MatmulArgs& args) { multiply_and_finish(d, *shared, args); });
                     },
                     [shared](const Outputs& o) {
                       return check_product(*shared, o, 2 * static_cast<double>(shared->a.view.cols) + 8);
                     }});
  };
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const Shape& s : {Shape{3, 70, 20}, {1, 1, 3}, {0, 5, 3}, {300, 2, 1}}) {
      for (int steps = 0; steps < 4; ++steps) {
        MatmulCase in = case_of(s, dtype, dtype, dtype);
        add_finish(in, s, dtype, (steps & 1) != 0, (steps & 2) != 0);
        add(s, dtype, " finish " + std::to_string(steps), in);
      }
    }
    const Shape s{3, 70, 20};
    MatmulCase special = case_of(s, dtype, dtype, dtype, true);
    special.c = HostMatrix(dtype, s.m, s.n, 3, 5, true);
    add(s, dtype, " special values, transposed", special);
  }
}

}  // namespace motley::kernels
