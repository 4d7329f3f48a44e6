// Exact sums: the same bits in every order and split, rounded once.
#include "algos/exact_sum.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/philox.h"

namespace motley::algos {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double sum_of(const std::vector<double>& values) {
  ExactSum sum;
  for (const double value : values) sum.add(value);
  return sum.value();
}

/// Values of all sizes and signs.
std::vector<double> wild_values(size_t count, uint64_t seed) {
  kernels::RandomStream random({seed, kernels::Purpose::data, 0, 0});
  std::vector<double> values;
  for (size_t i = 0; i < count; ++i) {
    const double mantissa = 1.0 + static_cast<double>(random.below(1u << 30)) * 0x1p-30;
    const auto exponent = static_cast<int>(random.below(80)) - 40;
    values.push_back(std::ldexp(random.below(2) ? mantissa : -mantissa, exponent));
  }
  return values;
}

TEST_CASE("nothing is rounded away before the end") {
  CHECK(sum_of({}) == 0.0);
  CHECK(sum_of({0.1}) == 0.1);
  CHECK(sum_of({-0.1}) == -0.1);
  CHECK(sum_of({1e100, 1.0, -1e100}) == 1.0);
  CHECK(sum_of({1e300, -1e-300, -1e300}) == -1e-300);
  CHECK(sum_of({1e308, 1e308, -1e308}) == 1e308);
  CHECK(sum_of({5e-324, 5e-324, 5e-324}) == 1.5e-323);
  CHECK(std::signbit(sum_of({0.5, -0.5})) == false);
  CHECK(sum_of(std::vector<double>(10, 0.1)) == 1.0);  // 10 times the double next to 0.1, rounded once
}

TEST_CASE("the one rounding is to nearest, ties to even") {
  CHECK(sum_of({1.0, 0x1p-53}) == 1.0);
  CHECK(sum_of({1.0, 0x1p-53, 0x1p-120}) == 1.0 + 0x1p-52);
  CHECK(sum_of({1.0, 0x1p-53, -0x1p-120}) == 1.0);
  CHECK(sum_of({1.0 + 0x1p-52, 0x1p-53}) == 1.0 + 0x1p-51);
  CHECK(sum_of({-1.0, -0x1p-53, -0x1p-120}) == -1.0 - 0x1p-52);
  CHECK(sum_of({0x1p60, 1.0, 0x1p60}) == 0x1p61);
}

TEST_CASE("order and split change no bit") {
  const std::vector<double> values = wild_values(500, 1);
  const double expected = sum_of(values);
  CHECK(sum_of({values.rbegin(), values.rend()}) == expected);
  CHECK(std::accumulate(values.begin(), values.end(), 0.0) != expected);  // what a plain sum makes of it
  for (const size_t parts : {1u, 2u, 3u, 7u, 500u}) {
    ExactSum total;
    for (size_t part = parts; part-- > 0;) {
      ExactSum sum;
      for (size_t i = part; i < values.size(); i += parts) sum.add(values[i]);
      total += sum;
    }
    CAPTURE(parts);
    CHECK(total.value() == expected);
    CHECK(total.mean(500) == expected / 500);
  }
}

TEST_CASE("a sum into itself, and many small ones, carry") {
  ExactSum sum;
  sum.add(-3.0);
  for (int i = 0; i < 40; ++i) sum += ExactSum(sum);
  CHECK(sum.value() == -3.0 * 0x1p40);
  ExactSum ones;
  for (int i = 0; i < 100000; ++i) ones.add(1.0 - 0x1p-53);
  CHECK(ones.value() == 1e5 - 1e5 * 0x1p-53);
}

TEST_CASE("what is no finite number ends as in any addition") {
  CHECK(sum_of({1.0, kInfinity}) == kInfinity);
  CHECK(sum_of({-kInfinity, 1.0}) == -kInfinity);
  CHECK(std::isnan(sum_of({kInfinity, -kInfinity})));
  CHECK(std::isnan(sum_of({std::nan(""), 1.0})));
  ExactSum left, right;
  left.add(kInfinity);
  right.add(-kInfinity);
  left += right;
  CHECK(std::isnan(left.value()));
}

TEST_CASE("exponents go beyond a double's") {
  ExactSum sum;
  sum.add(scaled_exp(800.0));
  sum.add(scaled_exp(800.0));
  CHECK(sum.value() == kInfinity);
  const ScaledDouble scaled = sum.scaled();
  CHECK(std::log(scaled.mantissa) + static_cast<double>(scaled.exponent) * std::log(2.0) ==
        Approx(800.0 + std::log(2.0)).epsilon(1e-15));
  ExactSum large;
  for (int i = 0; i < 4; ++i) large.add(1e308);
  CHECK(large.value() == kInfinity);
  CHECK(large.mean(4) == 1e308);
}

TEST_CASE("exp beyond 300 keeps its digits and its bounds") {
  CHECK(scaled_exp(1.5).value() == std::exp(1.5));
  CHECK(scaled_exp(-kInfinity).value() == 0.0);
  CHECK(std::isnan(scaled_exp(std::nan("")).value()));
  for (const double x : {300.5, -300.5, 650.0, -650.0, 709.0, -700.0}) {
    CAPTURE(x);
    CHECK(scaled_exp(x).value() == Approx(std::exp(x)).epsilon(4e-16 * std::abs(x)));
  }
  const ScaledDouble far = scaled_exp(1000.0);  // exp(1000) = exp(250)^4
  const double quarter = std::exp(250.0) * 0x1p-360;
  CHECK(std::ldexp(far.mantissa, static_cast<int>(far.exponent) - 4 * 360) ==
        Approx(quarter * quarter * quarter * quarter).epsilon(1e-13));
  CHECK(scaled_exp(1e30).exponent == scaled_exp(10000.0).exponent);
}

}  // namespace
}  // namespace motley::algos
