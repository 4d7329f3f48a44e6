#include <cmath>
#include <limits>

#include "kernels/norm.h"
#include "tests/kernels/device_cases.h"
#include "tests/kernels/values.h"

namespace motley::kernels {
namespace {

template <class T>
struct NormInputs {
  int64_t rows, cols;
  bool plain;  // finite values that a float64 reference can follow
  std::vector<T> x, gain, dy;
  std::vector<Compute<T>> rstd;

  NormInputs(int64_t rows_in, int64_t cols_in, bool plain_in)
      : rows(rows_in),
        cols(cols_in),
        plain(plain_in),
        x(values<T>(rows * cols, 1, 3.0)),
        gain(values<T>(cols, 2)),
        dy(values<T>(rows * cols, 3)) {
    for (const T& value : values<T>(rows, 4)) rstd.push_back(static_cast<Compute<T>>(1.5 + 0.5 * real(value)));
    if (plain) return;
    const double special[] = {
        std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(), -0.0, 1e-30, 6e4, 0.0};
    for (size_t i = 0; i < x.size(); i += 5) x[i] = as<T>(special[i / 5 % 6]);
    for (int64_t c = 0; c < (rows > 1 ? cols : 0); ++c) x[static_cast<size_t>(cols + c)] = as<T>(-0.0);
  }
};

template <class T>
Outputs run_forward(const NormInputs<T>& in, const Device& device) {
  const OnDevice<T> x(device, in.x), gain(device, in.gain), y(device, std::vector<T>(in.x.size()));
  const OnDevice<Compute<T>> rstd(device, std::vector<Compute<T>>(in.rstd.size()));
  MOTLEY_DISPATCH(device, rms_norm,
                  RmsNormArgs<T>{y.data(), rstd.data(), x.data(), gain.data(), in.rows, in.cols, 1e-6});
  device_synchronize(device);
  return {y.output("y"), rstd.output("rstd")};
}

template <class T>
std::string check_forward(const NormInputs<T>& in, const Outputs& outputs) {
  if (!in.plain) return {};
  const std::vector<T> y = elements<T>(outputs[0]);
  const auto rstd = elements<Compute<T>>(outputs[1]);
  std::string wrong;
  for (int64_t r = 0; r < in.rows; ++r) {
    double sum = 0;
    for (int64_t c = 0; c < in.cols; ++c) sum += real(in.x[r * in.cols + c]) * real(in.x[r * in.cols + c]);
    const double want = 1 / std::sqrt(sum / static_cast<double>(in.cols) + 1e-6);
    // A lane sums cols / 16 squares, the tree adds 4 levels; root, quotient and two products round once each. The
    // reference sums cols in a row, which for fp64 is what errs most.
    const double steps = static_cast<double>(dtype_of<T>() == DType::f64 ? in.cols : in.cols / 16);
    const double relative = (steps + 10) * unit<Compute<T>>() + unit<T>();
    wrong += beyond("rstd", r, rstd[r], want, relative * want);
    for (int64_t c = 0; c < in.cols && wrong.empty(); ++c) {
      const int64_t i = r * in.cols + c;
      const double value = real(in.x[i]) * want * real(in.gain[c]);
      wrong += beyond("y", i, real(y[i]), value, relative * std::fabs(value) + 0x1p-25);  // fp16 subnormals
    }
  }
  return wrong;
}

template <class T>
Outputs run_backward(const NormInputs<T>& in, const Device& device) {
  const OnDevice<T> x(device, in.x), gain(device, in.gain), dy(device, in.dy), dx(device, std::vector<T>(in.x.size()));
  const OnDevice<Compute<T>> rstd(device, in.rstd), dgain(device, std::vector<Compute<T>>(in.gain.size(), 0.25));
  MOTLEY_DISPATCH(
      device, rms_norm_backward,
      RmsNormBackwardArgs<T>{dx.data(), dgain.data(), dy.data(), x.data(), gain.data(), rstd.data(), in.rows, in.cols});
  device_synchronize(device);
  return {dx.output("dx"), dgain.output("dgain")};
}

template <class T>
std::string check_backward(const NormInputs<T>& in, const Outputs& outputs) {
  if (!in.plain) return {};
  const std::vector<T> dx = elements<T>(outputs[0]);
  const auto dgain = elements<Compute<T>>(outputs[1]);
  const double u = unit<Compute<T>>(), cols = static_cast<double>(in.cols);
  std::string wrong;
  std::vector<double> sums(in.gain.size(), 0.25), sizes(in.gain.size(), 0.25);
  for (int64_t r = 0; r < in.rows && wrong.empty(); ++r) {
    const double rstd = in.rstd[r];
    double pull = 0, pull_size = 0;
    for (int64_t c = 0; c < in.cols; ++c) {
      const double x = real(in.x[r * in.cols + c]), dy = real(in.dy[r * in.cols + c]);
      pull += dy * real(in.gain[c]) * x / cols * rstd * rstd;
      pull_size += std::fabs(dy * real(in.gain[c]) * x) / cols * rstd * rstd;
      sums[c] += dy * x * rstd;
      sizes[c] += std::fabs(dy * x * rstd);
    }
    for (int64_t c = 0; c < in.cols; ++c) {
      const int64_t i = r * in.cols + c;
      const double scaled = real(in.dy[i]) * real(in.gain[c]), x = real(in.x[i]);
      const double want = rstd * (scaled - x * pull);
      // The sum errs by one rounding per term at most; scaling, pull and result add six.
      const double size = rstd * (std::fabs(scaled) + std::fabs(x) * pull_size);
      wrong += beyond("dx", i, real(dx[i]), want, 2 * (cols + 8) * u * size + unit<T>() * std::fabs(want) + 0x1p-25);
    }
  }
  for (int64_t c = 0; c < in.cols && wrong.empty(); ++c)
    wrong += beyond("dgain", c, dgain[c], sums[c], 2 * (static_cast<double>(in.rows) + 3) * u * sizes[c]);
  return wrong;
}

template <class T>
void add_cases(std::vector<DeviceCase>& cases) {
  struct Shape {
    int64_t rows, cols;
    bool plain = true;
  };
  // Half-warps: 16 columns; a block: 8 rows, or 128 columns of dgain.
  for (const Shape& s : {Shape{0, 5},
                         {1, 1},
                         {2, 15},
                         {7, 16},
                         {8, 17},
                         {9, 33},
                         {3, 127},
                         {2, 128},
                         {17, 129},
                         {1, 300},
                         {8, 40, false},
                         {3, 1, false}}) {
    const NormInputs<T> in(s.rows, s.cols, s.plain);
    const std::string shape =
        "[" + std::to_string(s.rows) + ", " + std::to_string(s.cols) + "]" + (s.plain ? "" : " special");
    const std::string type = dtype_name(dtype_of<T>());
    cases.push_back({"rms_norm", type, shape, [in](const Device& d) { return run_forward(in, d); },
                     [in](const Outputs& o) { return check_forward(in, o); }});
    cases.push_back({"rms_norm_backward", type, shape, [in](const Device& d) { return run_backward(in, d); },
                     [in](const Outputs& o) { return check_backward(in, o); }});
  }
}

}  // namespace

void add_norm_cases(std::vector<DeviceCase>& cases) {
  add_cases<float>(cases);
  add_cases<double>(cases);
  add_cases<bf16>(cases);
  add_cases<fp16>(cases);
}

}  // namespace motley::kernels
