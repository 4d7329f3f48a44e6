#include <cmath>

#include "kernels/pointwise.h"
#include "tests/kernels/device_cases.h"
#include "tests/kernels/values.h"

namespace motley::kernels {
namespace {

// A block has 128 threads of 4 elements.
constexpr int64_t kCounts[] = {0, 1, 127, 128, 129, 511, 512, 513, 1300};
constexpr int64_t kSpecialCount = 600;

template <class T>
struct ElementInputs {
  int64_t count;
  bool plain, in_place;
  std::vector<T> a, b, c;

  ElementInputs(int64_t count_in, bool plain_in, bool in_place_in)
      : count(count_in),
        plain(plain_in),
        in_place(in_place_in),
        a(values<T>(count, 1, 8.0)),
        b(values<T>(count, 2)),
        c(values<T>(count, 3)) {
    if (plain) return;
    a = with_specials(a, 3);
    b = with_specials(b, 5);
    c = with_specials(c, 7);
  }
  std::string shape() const {
    return "[" + std::to_string(count) + "]" + (plain ? "" : " special") + (in_place ? " in place" : "");
  }
};

template <class T>
Outputs run_silu_mul(const ElementInputs<T>& in, const Device& device) {
  const OnDevice<T> gate(device, in.a), up(device, in.b), y(device, std::vector<T>(in.a.size()));
  MOTLEY_DISPATCH(device, silu_mul, SiluMulArgs<T>{y.data(), gate.data(), up.data(), in.count});
  device_synchronize(device);
  return {y.output("y")};
}
template <class T>
std::string check_silu_mul(const ElementInputs<T>& in, const Outputs& outputs) {
  const auto y = elements<T>(outputs[0]);
  std::string wrong;
  for (int64_t i = 0; in.plain && i < in.count && wrong.empty(); ++i) {
    const double gate = real(in.a[i]), want = gate / (1 + std::exp(-gate)) * real(in.b[i]);
    // exp errs by three roundings, four operations follow; the reference errs as much where it is not wider.
    wrong += beyond("y", i, real(y[i]), want, 14 * unit<Compute<T>>() * std::fabs(want) + rounding<T>(want));
  }
  return wrong;
}

/// In place: dgate is dy, and silu(gate) * up is not asked for.
template <class T>
Outputs run_silu_mul_backward(const ElementInputs<T>& in, const Device& device) {
  const std::vector<T> none(in.a.size());
  const OnDevice<T> gate(device, in.a), up(device, in.b), dy(device, in.c), dgate(device, none), dup(device, none),
      y(device, none);
  MOTLEY_DISPATCH(device, silu_mul_backward,
                  SiluMulBackwardArgs<T>{in.in_place ? dy.data() : dgate.data(), dup.data(), dy.data(), gate.data(),
                                         up.data(), in.count, in.in_place ? nullptr : y.data()});
  device_synchronize(device);
  return {(in.in_place ? dy : dgate).output("dgate"), dup.output("dup"), y.output("y")};
}
template <class T>
std::string check_silu_mul_backward(const ElementInputs<T>& in, const Outputs& outputs) {
  const auto dgate = elements<T>(outputs[0]), dup = elements<T>(outputs[1]), y = elements<T>(outputs[2]);
  const double u = unit<Compute<T>>();
  std::string wrong;
  for (int64_t i = 0; in.plain && i < in.count && wrong.empty(); ++i) {
    const double gate = real(in.a[i]), up = real(in.b[i]), dy = real(in.c[i]), s = 1 / (1 + std::exp(-gate));
    const double scale = dy * up * s, want = scale * (1 + gate * (1 - s));
    wrong +=
        beyond("dgate", i, real(dgate[i]), want, 24 * u * std::fabs(scale) * (1 + std::fabs(gate)) + rounding<T>(want));
    wrong += beyond("dup", i, real(dup[i]), dy * gate * s, 14 * u * std::fabs(dy * gate * s) + rounding<T>(dy * gate));
    const double product = in.in_place ? 0 : gate * s * up;
    wrong += beyond("y", i, real(y[i]), product, 14 * u * std::fabs(product) + rounding<T>(product));
  }
  return wrong;
}

template <class T>
Outputs run_add(const ElementInputs<T>& in, const Device& device) {
  const OnDevice<T> a(device, in.a), b(device, in.b), y(device, std::vector<T>(in.a.size()));
  T* const to = in.in_place ? a.data() : y.data();
  MOTLEY_DISPATCH(device, add, to, a.data(), b.data(), in.count);
  device_synchronize(device);
  return {(in.in_place ? a : y).output("y")};
}
template <class T>
std::string check_add(const ElementInputs<T>& in, const Outputs& outputs) {
  const auto y = elements<T>(outputs[0]);
  std::string wrong;
  for (int64_t i = 0; in.plain && i < in.count && wrong.empty(); ++i) {
    const double want = real(in.a[i]) + real(in.b[i]);
    wrong += beyond("y", i, real(y[i]), want, unit<Compute<T>>() * std::fabs(want) + rounding<T>(want));
  }
  return wrong;
}

template <class T>
Outputs run_adamw(const ElementInputs<T>& in, const Device& device) {
  std::vector<T> squares;
  for (const T x : in.c) squares.push_back(x * x);
  const OnDevice<T> weight(device, in.a), first(device, in.b), second(device, squares), gradient(device, in.c);
  MOTLEY_DISPATCH(device, adamw,
                  AdamWArgs<T>{weight.data(), first.data(), second.data(), gradient.data(), in.count, 0.5, 0.01, 0.9,
                               0.95, 1e-8, 0.1, 3});
  device_synchronize(device);
  return {weight.output("weight"), first.output("first"), second.output("second")};
}
template <class T>
std::string check_adamw(const ElementInputs<T>& in, const Outputs& outputs) {
  const auto weight = elements<T>(outputs[0]), first = elements<T>(outputs[1]), second = elements<T>(outputs[2]);
  std::string wrong;
  for (int64_t i = 0; in.plain && i < in.count && wrong.empty(); ++i) {
    const double g = 0.5 * in.c[i], m = 0.9 * in.b[i] + 0.1 * g, v = 0.95 * in.c[i] * in.c[i] + 0.05 * g * g;
    const double m_size = 0.9 * std::fabs(in.b[i]) + 0.1 * std::fabs(g);
    const double root = std::sqrt(v / (1 - std::pow(0.95, 3))) + 1e-8, rate = 0.01 / (1 - std::pow(0.9, 3));
    // Three roundings of a moment and of its factors; root, quotient and weight add six.
    wrong += beyond("first", i, first[i], m, 6 * unit<T>() * m_size);
    wrong += beyond("second", i, second[i], v, 8 * unit<T>() * v);
    wrong += beyond("weight", i, weight[i], in.a[i] * (1 - 0.01 * 0.1) - rate * m / root,
                    24 * unit<T>() * (std::fabs(in.a[i]) + rate * m_size / root));
  }
  return wrong;
}

template <class T>
struct RopeInputs {
  int64_t rows, heads, head_dim;
  bool inverse, plain, in_place;
  std::vector<T> x;
  std::vector<Compute<T>> cosines, sines;
  std::vector<int32_t> positions;

  RopeInputs(int64_t rows_in, int64_t heads_in, int64_t head_dim_in, bool inverse_in, bool plain_in, bool in_place_in)
      : rows(rows_in),
        heads(heads_in),
        head_dim(head_dim_in),
        inverse(inverse_in),
        plain(plain_in),
        in_place(in_place_in),
        x(values<T>(rows * heads * head_dim, 5)) {
    constexpr int kPositions = 7;
    for (int p = 0; p < kPositions; ++p) {
      for (int64_t i = 0; i < head_dim / 2; ++i) {
        cosines.push_back(static_cast<Compute<T>>(std::cos(p * 0.7 / static_cast<double>(i + 1))));
        sines.push_back(static_cast<Compute<T>>(std::sin(p * 0.7 / static_cast<double>(i + 1))));
      }
    }
    for (int64_t r = 0; r < rows; ++r) positions.push_back(static_cast<int32_t>(r * 3 % kPositions));
    if (!plain) x = with_specials(x, 3);
  }
};
template <class T>
Outputs run_rope(const RopeInputs<T>& in, const Device& device) {
  const OnDevice<T> x(device, in.x), y(device, std::vector<T>(in.x.size()));
  const OnDevice<Compute<T>> cosines(device, in.cosines), sines(device, in.sines);
  const OnDevice<int32_t> positions(device, in.positions);
  MOTLEY_DISPATCH(device, rope,
                  RopeArgs<T>{in.in_place ? x.data() : y.data(), x.data(), positions.data(), cosines.data(),
                              sines.data(), in.rows, in.heads, in.head_dim, in.inverse});
  device_synchronize(device);
  return {(in.in_place ? x : y).output("y")};
}
template <class T>
std::string check_rope(const RopeInputs<T>& in, const Outputs& outputs) {
  const auto y = elements<T>(outputs[0]);
  const int64_t half = in.head_dim / 2;
  std::string wrong;
  for (int64_t row = 0; in.plain && row < in.rows * in.heads && wrong.empty(); ++row) {
    for (int64_t i = 0; i < half; ++i) {
      const int64_t low = row * in.head_dim + i, high = low + half, at = in.positions[row / in.heads] * half + i;
      const double a = real(in.x[low]), b = real(in.x[high]), c = in.cosines[at];
      const double s = in.inverse ? -in.sines[at] : in.sines[at];
      const double low_want = a * c - b * s, high_want = b * c + a * s, u = 4 * unit<Compute<T>>();
      wrong +=
          beyond("y", low, real(y[low]), low_want, u * (std::fabs(a * c) + std::fabs(b * s)) + rounding<T>(low_want));
      wrong += beyond("y", high, real(y[high]), high_want,
                      u * (std::fabs(b * c) + std::fabs(a * s)) + rounding<T>(high_want));
    }
  }
  return wrong;
}

template <class T>
void add_element_cases(std::vector<DeviceCase>& cases, const ElementInputs<T>& in) {
  const std::string type = dtype_name(dtype_of<T>());
  if (!in.in_place)
    cases.push_back({"silu_mul", type, in.shape(), [in](const Device& d) { return run_silu_mul(in, d); },
                     [in](const Outputs& o) { return check_silu_mul(in, o); }});
  cases.push_back({"silu_mul_backward", type, in.shape(),
                   [in](const Device& d) { return run_silu_mul_backward(in, d); },
                   [in](const Outputs& o) { return check_silu_mul_backward(in, o); }});
  cases.push_back({"add", type, in.shape(), [in](const Device& d) { return run_add(in, d); },
                   [in](const Outputs& o) { return check_add(in, o); }});
  if constexpr (std::is_same_v<T, Compute<T>>) {
    if (in.in_place) return;
    cases.push_back({"adamw", type, in.shape(), [in](const Device& d) { return run_adamw(in, d); },
                     [in](const Outputs& o) { return check_adamw(in, o); }});
  }
}

template <class T>
void add_cases(std::vector<DeviceCase>& cases) {
  for (const int64_t count : kCounts) add_element_cases(cases, ElementInputs<T>(count, true, false));
  add_element_cases(cases, ElementInputs<T>(kSpecialCount, false, false));
  add_element_cases(cases, ElementInputs<T>(kSpecialCount, true, true));
  struct Shape {
    int64_t rows, heads, head_dim;
    bool inverse = false, plain = true, in_place = false;
  };
  // A block has a row and 128 threads, each a pair.
  for (const Shape& s : {Shape{0, 2, 4},
                         {1, 1, 2},
                         {3, 1, 1},
                         {5, 3, 6, true},
                         {2, 127, 2},
                         {2, 2, 128, true},
                         {4, 43, 6, false, true, true},
                         {3, 5, 130, true, true, true},
                         {4, 3, 16, false, false},
                         {4, 3, 16, true, false}}) {
    const RopeInputs<T> in(s.rows, s.heads, s.head_dim, s.inverse, s.plain, s.in_place);
    const std::string shape = "[" + std::to_string(s.rows) + ", " + std::to_string(s.heads) + ", " +
                              std::to_string(s.head_dim) + "]" + (s.inverse ? " inverse" : "") +
                              (s.plain ? "" : " special") + (s.in_place ? " in place" : "");
    cases.push_back({"rope", dtype_name(dtype_of<T>()), shape, [in](const Device& d) { return run_rope(in, d); },
                     [in](const Outputs& o) { return check_rope(in, o); }});
  }
}

}  // namespace

void add_pointwise_cases(std::vector<DeviceCase>& cases) {
  add_cases<float>(cases);
  add_cases<double>(cases);
  add_cases<bf16>(cases);
  add_cases<fp16>(cases);
}

}  // namespace motley::kernels
