#include <cmath>

#include "kernels/pointwise.h"
#include "tests/kernels/device_cases.h"
#include "tests/kernels/values.h"

namespace motley::kernels {
namespace {

// A block has 128 threads of 4 elements.
constexpr int64_t kCounts[] = {0, 1, 127, 129, 511, 513, 1300};

template <class T>
struct Source {
  int64_t count;
  bool plain;
  std::vector<T> x;

  Source(int64_t count_in, bool plain_in, double scale)
      : count(count_in), plain(plain_in), x(values<T>(count, 1, scale)) {
    if (!plain) x = with_specials(x, 3);
  }
  std::string shape() const { return "[" + std::to_string(count) + "]" + (plain ? "" : " special"); }
};

template <class To, class From>
void add_convert_case(std::vector<DeviceCase>& cases, const Source<From>& in) {
  const auto run = [in](const Device& device) {
    const OnDevice<From> x(device, in.x);
    const OnDevice<To> y(device, std::vector<To>(in.x.size()));
    MOTLEY_DISPATCH(device, convert, y.data(), dtype_of<To>(), x.data(), dtype_of<From>(), in.count);
    device_synchronize(device);
    return Outputs{y.output("y")};
  };
  const auto check = [in](const Outputs& outputs) {
    const auto y = elements<To>(outputs[0]);
    std::string wrong;
    for (int64_t i = 0; in.plain && i < in.count && wrong.empty(); ++i)
      wrong += beyond("y", i, real(y[i]), real(in.x[i]), rounding<To>(real(in.x[i])));
    return wrong;
  };
  const std::string type = std::string(dtype_name(dtype_of<From>())) + " to " + dtype_name(dtype_of<To>());
  cases.push_back({"convert", type, in.shape(), run, check});
}

template <class T>
void add_round_case(std::vector<DeviceCase>& cases, const Source<T>& in, Format format, double scale) {
  const auto run = [in, format, scale](const Device& device) {
    const OnDevice<T> x(device, in.x), y(device, std::vector<T>(in.x.size()));
    MOTLEY_DISPATCH(device, round_values, y.data(), x.data(), format, scale, in.count);
    device_synchronize(device);
    return Outputs{y.output("y")};
  };
  const auto check = [in, format, scale](const Outputs& outputs) {
    const auto y = elements<T>(outputs[0]);
    const double u = unit<Compute<T>>();
    std::string wrong;
    for (int64_t i = 0; in.plain && i < in.count && wrong.empty(); ++i) {
      const double x = real(in.x[i]), code = std::fabs(x / scale);
      // The quotient, the code and the product round once each; below fp32 a value of fp64 is first rounded to it.
      const double bound = scale * format_rounding(format, code) * 1.01 + (4 * u + 0x1p-23) * std::fabs(x);
      wrong += beyond("y", i, real(y[i]), x, bound + rounding<T>(x));
    }
    return wrong;
  };
  const std::string type = std::string(dtype_name(dtype_of<T>())) + " to " + std::string(format_name(format));
  const std::string shape = in.shape() + " scale " + (scale == 1.0 ? "1" : "0.3");
  cases.push_back({"round_values", type, shape, run, check});
}

template <class T>
void add_square_case(std::vector<DeviceCase>& cases, const Source<T>& in) {
  const auto run = [in](const Device& device) {
    const OnDevice<T> x(device, in.x);
    const OnDevice<double> sum(device, std::vector<double>{-1.0});
    MOTLEY_DISPATCH(device, sum_of_squares, sum.data(), x.data(), in.count);
    device_synchronize(device);
    return Outputs{sum.output("sum")};
  };
  const auto check = [in](const Outputs& outputs) {
    if (!in.plain) return std::string();
    long double want = 0;
    for (const T x : in.x) want += static_cast<long double>(real(x)) * real(x);
    // A lane adds at most 4096 squares, each rounded; then the tree and the blocks.
    const double steps = static_cast<double>(std::min(in.count / 16, int64_t{4096}) + in.count / kSumBlock + 8);
    return beyond("sum", 0, elements<double>(outputs[0])[0], static_cast<double>(want),
                  steps * 0x1p-53 * static_cast<double>(want));
  };
  cases.push_back({"sum_of_squares", dtype_name(dtype_of<T>()), in.shape(), run, check});
}

template <class T>
void add_cases(std::vector<DeviceCase>& cases) {
  for (const int64_t count : kCounts) {
    const Source<T> in(count, true, 40.0);
    add_convert_case<float>(cases, in);
    add_convert_case<double>(cases, in);
    add_convert_case<bf16>(cases, in);
    add_convert_case<fp16>(cases, in);
  }
  const Source<T> special(600, false, 4.0);
  add_convert_case<float>(cases, special);
  add_convert_case<double>(cases, special);
  add_convert_case<bf16>(cases, special);
  add_convert_case<fp16>(cases, special);
  for (const Format format : {Format::fp64, Format::fp32, Format::bf16, Format::fp16, Format::e4m3, Format::e5m2}) {
    for (const double scale : {1.0, 0.3}) {
      for (const int64_t count : {0, 1, 513, 600}) add_round_case(cases, Source<T>(count, true, 100.0), format, scale);
      add_round_case(cases, special, format, scale);
    }
  }
  // A block sums 2^16 elements, 1024 at a time in 16 lanes.
  for (const int64_t count : {0, 1, 15, 17, 1023, 1024, 1025}) add_square_case(cases, Source<T>(count, true, 3.0));
  for (const int64_t past : {-1, 0, 1, 1500}) add_square_case(cases, Source<T>(kSumBlock + past, true, 3.0));
  add_square_case(cases, special);
}

}  // namespace

void add_convert_cases(std::vector<DeviceCase>& cases) {
  add_cases<float>(cases);
  add_cases<double>(cases);
  add_cases<bf16>(cases);
  add_cases<fp16>(cases);
}

}  // namespace motley::kernels
