#include <cmath>
#include <limits>

#include "kernels/arrays.h"
#include "tests/kernels/device_cases.h"
#include "tests/kernels/values.h"

namespace motley::kernels {
namespace {

template <class T>
struct ArrayInputs {
  int64_t count;
  bool plain;  // finite values that a float64 reference can follow
  std::vector<T> a, b;

  ArrayInputs(int64_t count_in, bool plain_in)
      : count(count_in), plain(plain_in), a(values<T>(count, 1, 2.0)), b(values<T>(count, 2)) {
    const double special[] = {std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::infinity(), -0.0,
                              1e-30, 6e4};
    for (size_t i = 0; i < a.size() && !plain; i += 3) a[i] = as<T>(special[i / 3 % 5]);
  }
};

template <class T>
Outputs run_multiply(const ArrayInputs<T>& in, const Device& device) {
  const OnDevice<T> a(device, in.a), b(device, in.b), y(device, std::vector<T>(in.a.size()));
  MOTLEY_DISPATCH(device, multiply<T>, y.data(), a.data(), b.data(), in.count);
  device_synchronize(device);
  return {y.output("y")};
}
template <class T>
std::string check_multiply(const ArrayInputs<T>& in, const Outputs& outputs) {
  const std::vector<T> y = elements<T>(outputs[0]);
  std::string wrong;
  for (size_t i = 0; i < y.size() && in.plain; ++i) {
    const double want = real(in.a[i]) * real(in.b[i]);
    // The product is rounded to what it is computed in and to T; 2^-25: fp16 subnormals.
    const double bound = (unit<Compute<T>>() + unit<T>()) * std::fabs(want);
    wrong += beyond("y", static_cast<int64_t>(i), real(y[i]), want, bound + 0x1p-25);
  }
  return wrong;
}

template <class T>
Outputs run_fill(const ArrayInputs<T>& in, const Device& device) {
  const OnDevice<T> y(device, in.a);
  const OnDevice<Compute<T>> value(device, std::vector<Compute<T>>{static_cast<Compute<T>>(in.plain ? 0.7 : NAN)});
  MOTLEY_DISPATCH(device, fill<T>, y.data(), value.data(), in.count);
  device_synchronize(device);
  return {y.output("y")};
}
template <class T>
std::string check_fill(const ArrayInputs<T>& in, const Outputs& outputs) {
  std::string wrong;
  for (const T y : elements<T>(outputs[0]))
    if (in.plain) wrong += beyond("y", 0, real(y), 0.7, 0.7 * (unit<Compute<T>>() + unit<T>()));
  return wrong;
}

template <class T>
Outputs run_sum(const ArrayInputs<T>& in, const Device& device) {
  const OnDevice<T> x(device, in.a);
  const OnDevice<Compute<T>> y(device, std::vector<Compute<T>>(1));
  MOTLEY_DISPATCH(device, sum<T>, y.data(), x.data(), in.count);
  device_synchronize(device);
  return {y.output("y")};
}
template <class T>
std::string check_sum(const ArrayInputs<T>& in, const Outputs& outputs) {
  if (!in.plain) return {};
  double want = 0, size = 0;
  for (const T x : in.a) {
    want += real(x);
    size += std::fabs(real(x));
  }
  const double bound = static_cast<double>(in.count) * 0x1p-52 * size + unit<Compute<T>>() * std::fabs(want);
  return beyond("y", 0, static_cast<double>(elements<Compute<T>>(outputs[0])[0]), want, bound);
}

/// Four rows into three; the last is named twice.
template <class T>
struct RowInputs {
  static constexpr int64_t kCount = 4;
  ArrayInputs<T> in;
  std::vector<int32_t> rows{2, 0, 1, 2};
  std::vector<T> into;
  RowInputs(int64_t cols, bool plain) : in(kCount * cols, plain), into(values<T>(3 * cols, 5)) {}
  int64_t cols() const { return in.count / kCount; }
};
template <class T>
Outputs run_add_rows(const RowInputs<T>& x, const Device& device) {
  const OnDevice<T> into(device, x.into), from(device, x.in.a);
  const OnDevice<int32_t> rows(device, x.rows);
  MOTLEY_DISPATCH(device, add_rows<T>, {into.data(), from.data(), rows.data(), RowInputs<T>::kCount, x.cols()});
  device_synchronize(device);
  return {into.output("into")};
}
template <class T>
std::string check_add_rows(const RowInputs<T>& x, const Outputs& outputs) {
  if (!x.in.plain) return {};
  std::vector<double> want, size;
  for (const T value : x.into) {
    want.push_back(real(value));
    size.push_back(std::fabs(real(value)));
  }
  for (int64_t i = 0; i < x.in.count; ++i) {
    const auto at = static_cast<size_t>(x.rows[static_cast<size_t>(i / x.cols())] * x.cols() + i % x.cols());
    want[at] += real(x.in.a[static_cast<size_t>(i)]);
    size[at] += std::fabs(real(x.in.a[static_cast<size_t>(i)]));
  }
  const std::vector<T> got = elements<T>(outputs[0]);
  std::string wrong;
  for (size_t i = 0; i < got.size(); ++i)  // two additions at most, each rounded to its compute type and to T
    wrong += beyond("into", static_cast<int64_t>(i), real(got[i]), want[i],
                    2.1 * (unit<Compute<T>>() + unit<T>()) * size[i]);
  return wrong;
}

template <class T>
void add_cases(std::vector<DeviceCase>& cases) {
  const std::string type = dtype_name(dtype_of<T>());
  const auto add = [&](const char* kernel, const std::string& shape, auto in, auto run, auto check) {
    cases.push_back({kernel, type, shape, [=](const Device& d) { return run(in, d); },
                     [=](const Outputs& o) { return check(in, o); }});
  };
  // Blocks of 128 threads; a sum goes by tiles of 1024.
  for (const auto& [count, plain] : std::vector<std::pair<int64_t, bool>>{
           {0, true}, {1, true}, {15, true}, {127, true}, {128, true}, {129, true}, {1025, true}, {40, false}}) {
    const std::string shape = "[" + std::to_string(count) + "]" + (plain ? "" : " special");
    const ArrayInputs<T> in(count, plain);
    add("multiply", shape, in, run_multiply<T>, check_multiply<T>);
    add("fill", shape, in, run_fill<T>, check_fill<T>);
    add("sum", shape, in, run_sum<T>, check_sum<T>);
    if (count == 1025) continue;
    add("add_rows", shape, RowInputs<T>(count, plain), run_add_rows<T>, check_add_rows<T>);
  }
}

}  // namespace

void add_array_cases(std::vector<DeviceCase>& cases) {
  add_cases<float>(cases);
  add_cases<double>(cases);
  add_cases<bf16>(cases);
  add_cases<fp16>(cases);
}

}  // namespace motley::kernels
