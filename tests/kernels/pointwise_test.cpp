#include "kernels/pointwise.h"

#include <limits>

#include "tests/kernels/gradient.h"
#include "tests/kernels/values.h"

namespace motley::kernels {
namespace {
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
}  // namespace

TEMPLATE_TEST_CASE("silu_mul agrees with float64", "", float, double, bf16, fp16) {
  using T = TestType;
  for (const int64_t count : {0, 1, 17, 256, 1000}) {
    const auto gate = values<T>(count, 1, 8.0), up = values<T>(count, 2);
    std::vector<T> y(gate.size());
    cpu::silu_mul<T>({y.data(), gate.data(), up.data(), count});
    for (size_t i = 0; i < y.size(); ++i) {
      const double g = real(gate[i]), want = g / (1 + std::exp(-g)) * real(up[i]);
      // exp errs by 1.5 ulp (3 roundings), then four operations.
      REQUIRE(std::fabs(real(y[i]) - want) <= (8 * unit<Compute<T>>() + unit<T>()) * std::fabs(want) + 0x1p-25);
    }
  }
}

TEST_CASE("silu_mul's gradients and limits") {
  auto gate = values<double>(40, 3, 4.0), up = values<double>(40, 4);
  const auto dy = values<double>(40, 5);
  std::vector<double> y(40), dgate(40), dup(40);
  const auto loss = [&] {
    cpu::silu_mul<double>({y.data(), gate.data(), up.data(), 40});
    return dot(y, dy);
  };
  cpu::silu_mul_backward<double>({dgate.data(), dup.data(), dy.data(), gate.data(), up.data(), 40});
  check_gradient(gate, dgate, loss);
  check_gradient(up, dup, loss);
  const std::vector<float> far{-200.0f, 200.0f, static_cast<float>(kNan), -0.0f}, one(4, 1.0f);
  std::vector<float> z(4), dg(4), du(4);
  cpu::silu_mul<float>({z.data(), far.data(), one.data(), 4});
  CHECK(z[0] == 0.0f);
  CHECK(z[1] == 200.0f);
  CHECK(std::isnan(z[2]));
  CHECK(z[3] == 0.0f);
  cpu::silu_mul_backward<float>({dg.data(), du.data(), one.data(), far.data(), one.data(), 4});
  CHECK(dg[0] == 0.0f);
  CHECK(dg[1] == 1.0f);
  CHECK(dg[3] == 0.5f);
}

TEST_CASE("rope turns pairs, and its inverse turns them back") {
  const int64_t rows = 4, heads = 3, head_dim = 6, half = 3;
  const auto x = values<double>(rows * heads * head_dim, 6);
  std::vector<double> cosines, sines, y(x.size()), back(x.size());
  for (int p = 0; p < 9; ++p) {
    for (int i = 0; i < half; ++i) {
      cosines.push_back(std::cos(p * 0.3 * (i + 1)));
      sines.push_back(std::sin(p * 0.3 * (i + 1)));
    }
  }
  const std::vector<int32_t> positions{0, 8, 3, 3};
  RopeArgs<double> args{y.data(), x.data(), positions.data(), cosines.data(), sines.data(),
                        rows,     heads,    head_dim,         false};
  cpu::rope(args);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t i = 0; i < half; ++i) {
        const int64_t at = (r * heads + h) * head_dim + i, t = positions[r] * half + i;
        CHECK(y[at] == Approx(x[at] * cosines[t] - x[at + half] * sines[t]).margin(1e-15));
        CHECK(y[at + half] == Approx(x[at + half] * cosines[t] + x[at] * sines[t]).margin(1e-15));
      }
    }
  }
  args.x = y.data();
  args.y = back.data();
  args.inverse = true;
  cpu::rope(args);
  for (size_t i = 0; i < x.size(); ++i) CHECK(back[i] == Approx(x[i]).margin(1e-15));
  args.y = y.data();  // in place
  cpu::rope(args);
  CHECK(same_bits(y, back));
}

TEST_CASE("embedding looks up and its gradient adds, rows ascending") {
  const int64_t cols = 37;
  const auto table = values<bf16>(5 * cols, 7), dy = values<bf16>(6 * cols, 8);
  const std::vector<int32_t> ids{4, 0, 2, 4, 4, 1};
  std::vector<bf16> y(6 * cols);
  cpu::embedding<bf16>({y.data(), table.data(), ids.data(), 6, cols});
  std::vector<float> got = values<float>(5 * cols, 9), want = got;
  cpu::embedding_backward<bf16>({got.data(), dy.data(), ids.data(), 6, cols});
  for (int64_t r = 0; r < 6; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      CHECK(y[r * cols + c].bits == table[ids[r] * cols + c].bits);
      want[ids[r] * cols + c] += static_cast<float>(dy[r * cols + c]);
    }
  }
  CHECK(same_bits(got, want));
}

TEMPLATE_TEST_CASE("adamw follows its definition", "", float, double) {
  using T = TestType;
  const int64_t count = 50;
  auto weight = values<T>(count, 10), first = std::vector<T>(count), second = std::vector<T>(count);
  std::vector<double> w(count), m(count), v(count);
  for (int64_t i = 0; i < count; ++i) w[i] = weight[i];
  for (int64_t step = 1; step <= 5; ++step) {
    const auto gradient = values<T>(count, 10 + static_cast<uint64_t>(step));
    cpu::adamw<T>(
        {weight.data(), first.data(), second.data(), gradient.data(), count, 0.5, 0.01, 0.9, 0.95, 1e-8, 0.1, step});
    for (int64_t i = 0; i < count; ++i) {
      const double g = 0.5 * static_cast<double>(gradient[i]);
      m[i] = 0.9 * m[i] + 0.1 * g;
      v[i] = 0.95 * v[i] + 0.05 * g * g;
      const double corrected_m = m[i] / (1 - std::pow(0.9, step)), corrected_v = v[i] / (1 - std::pow(0.95, step));
      w[i] = w[i] * (1 - 0.01 * 0.1) - 0.01 * corrected_m / (std::sqrt(corrected_v) + 1e-8);
      // About ten roundings a step of values below 1.1, and a step of 0.01 from moments that carry as many.
      REQUIRE(std::fabs(static_cast<double>(weight[i]) - w[i]) <= 20.0 * static_cast<double>(step) * unit<T>());
    }
  }
}

TEST_CASE("convert rounds once, between every pair of types") {
  const std::vector<double> x{0.0,
                              -0.0,
                              1.0,
                              1.0 + 0x1p-8 + 0x1p-40,
                              1.0 + 0x1p-11 + 0x1p-45,
                              65519.999,
                              65520.0,
                              1e39,
                              -1e300,
                              0x1p-25,
                              0x1.0000001p-25,
                              kInf,
                              -kInf,
                              1e-320,
                              3.1,
                              1.0 + 0x1p-8 - 0x1p-40};
  const int64_t count = static_cast<int64_t>(x.size());
  std::vector<bf16> b(x.size());
  std::vector<fp16> h(x.size());
  std::vector<float> f(x.size());
  cpu::convert(b.data(), DType::bf16, x.data(), DType::f64, count);
  cpu::convert(h.data(), DType::f16, x.data(), DType::f64, count);
  cpu::convert(f.data(), DType::f32, x.data(), DType::f64, count);
  CHECK(std::signbit(real(b[1])));
  CHECK(real(b[3]) == 1.0 + 0x1p-7);  // by way of float it would be a tie, to 1
  CHECK(real(b[15]) == 1.0);          // by way of float it would be the tie
  CHECK(real(h[4]) == 1.0 + 0x1p-10);
  CHECK(real(h[5]) == 65504.0);
  CHECK(real(h[6]) == kInf);
  CHECK(real(b[7]) == kInf);
  CHECK(real(b[8]) == -kInf);
  CHECK(real(h[9]) == 0.0);
  CHECK(real(h[10]) == 0x1p-24);
  CHECK(real(h[12]) == -kInf);
  CHECK(real(b[13]) == 0.0);
  for (size_t i = 0; i < x.size(); ++i) CHECK(f[i] == static_cast<float>(x[i]));
  const auto many = values<float>(1000, 11, 4.0);
  std::vector<bf16> many_b(1000);
  std::vector<fp16> many_h(1000);
  std::vector<double> back(1000);
  cpu::convert(many_b.data(), DType::bf16, many.data(), DType::f32, 1000);
  cpu::convert(many_h.data(), DType::f16, many_b.data(), DType::bf16, 1000);
  cpu::convert(back.data(), DType::f64, many_h.data(), DType::f16, 1000);
  for (size_t i = 0; i < 1000; ++i) {
    CHECK(many_b[i].bits == bf16(many[i]).bits);
    CHECK(back[i] == real(fp16(static_cast<float>(many_b[i]))));
  }
  const double nan = kNan;
  cpu::convert(b.data(), DType::bf16, &nan, DType::f64, 1);
  CHECK(std::isnan(real(b[0])));
}

TEST_CASE("the vectorized conversions are those of formats.h, for every code") {
  std::vector<fp16> codes(65536);
  std::vector<float> decoded(65536), floats;
  for (uint32_t i = 0; i < 65536; ++i) codes[i].bits = static_cast<uint16_t>(i);
  cpu::convert(decoded.data(), DType::f32, codes.data(), DType::f16, 65536);
  for (uint32_t i = 0; i < 65536; ++i)
    REQUIRE(std::bit_cast<uint32_t>(decoded[i]) == std::bit_cast<uint32_t>(fp16_to_float(static_cast<uint16_t>(i))));
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 9973)
    floats.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  for (const float x : {65519.996f, 65520.0f, 0x1p-14f, 0x1.ffcp-15f, 0x1p-25f, 0x1.8p-24f}) floats.push_back(x);
  const int64_t count = static_cast<int64_t>(floats.size());
  std::vector<fp16> h(floats.size());
  std::vector<bf16> b(floats.size());
  cpu::convert(h.data(), DType::f16, floats.data(), DType::f32, count);
  cpu::convert(b.data(), DType::bf16, floats.data(), DType::f32, count);
  bool equal = true;
  for (size_t i = 0; i < floats.size(); ++i)
    equal = equal && h[i].bits == fp16_from_float(floats[i]) && b[i].bits == bf16_from_float(floats[i]);
  CHECK(equal);
}

TEMPLATE_TEST_CASE("round_values rounds to the format times a scale", "", float, double, bf16, fp16) {
  using T = TestType;
  const auto x = values<T>(300, 12, 500.0);
  std::vector<T> y(300);
  for (const Format format : {Format::fp32, Format::bf16, Format::fp16, Format::e4m3, Format::e5m2}) {
    for (const double scale : {1.0, 0.25, 0.3}) {
      cpu::round_values(y.data(), x.data(), format, scale, 300);
      for (size_t i = 0; i < 300; ++i) {
        const auto factor = static_cast<Compute<T>>(scale);
        const auto code = round_to_format(static_cast<float>(static_cast<Compute<T>>(x[i]) / factor), format);
        REQUIRE(real(y[i]) == real(static_cast<T>(static_cast<Compute<T>>(code) * factor)));
      }
    }
  }
  const std::vector<T> special{as<T>(kNan), as<T>(1e4), as<T>(-1e4), as<T>(-0.0)};
  cpu::round_values(y.data(), special.data(), Format::e4m3, 1.0, 4);
  CHECK(std::isnan(real(y[0])));
  CHECK(real(y[1]) == 448.0);
  CHECK(real(y[2]) == -448.0);
  CHECK(std::signbit(real(y[3])));
}

TEST_CASE("sum_of_squares, add, and threads") {
  const int64_t count = 200001;
  const auto x = values<float>(count, 13), z = values<float>(count, 14);
  double want = 0;
  for (const float v : x) want += static_cast<double>(v) * v;
  const auto squares_of = [&](int64_t size) {
    double squares = -1;
    cpu::sum_of_squares(&squares, x.data(), size);
    return squares;
  };
  const double sum = squares_of(count);
  CHECK(sum == Approx(want).epsilon(1e-12));  // 2e5 additions in double, 2^-53 each
  CHECK(squares_of(0) == 0.0);
  CHECK(squares_of(1) == static_cast<double>(x[0]) * x[0]);
  std::vector<float> y(x.size()), split(x.size());
  cpu::add(y.data(), x.data(), z.data(), count);
  for (size_t i = 0; i < x.size(); ++i) REQUIRE(y[i] == x[i] + z[i]);
  std::vector<float> s1(x.size()), s2(x.size());
  cpu::silu_mul<float>({s1.data(), x.data(), z.data(), count});
  for (const int threads : {2, 4}) {
    const Threads scope(threads);
    CHECK(squares_of(count) == sum);
    cpu::add(split.data(), x.data(), z.data(), count);
    CHECK(same_bits(y, split));
    cpu::silu_mul<float>({s2.data(), x.data(), z.data(), count});
    CHECK(same_bits(s1, s2));
  }
}

}  // namespace motley::kernels
