#include "kernels/math.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

namespace motley::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Error in units of the last place of the float nearest to the exact value (subnormals: their fixed spacing).
double float_ulps(float got, double exact) {
  if (static_cast<float>(exact) == got) return 0.0;
  int exponent;
  std::frexp(exact, &exponent);
  return std::fabs(static_cast<double>(got) - exact) / std::ldexp(1.0, std::max(exponent - 24, -149));
}
double double_ulps(double got, long double exact) {
  if (static_cast<double>(exact) == got) return 0.0;
  int exponent;
  std::frexp(exact, &exponent);
  const long double error = got > exact ? got - exact : exact - got;
  return static_cast<double>(error / std::ldexp(1.0L, std::max(exponent - 53, -1074)));
}

}  // namespace

TEST_CASE("exponential in float errs by less than 1.5 units in the last place") {
  double worst = 0;
  // Every 1009th float from -105 to 90 in either sign, subnormal results included.
  for (uint32_t bits = 0; bits < std::bit_cast<uint32_t>(105.0f); bits += 1009) {
    const float x = std::bit_cast<float>(bits);
    if (x < 88.72f) worst = std::max(worst, float_ulps(exponential(x), std::exp(static_cast<double>(x))));
    worst = std::max(worst, float_ulps(exponential(-x), std::exp(-static_cast<double>(x))));
  }
  CHECK(worst < 1.5);
  CHECK(exponential(0.0f) == 1.0f);
  CHECK(exponential(-0.0f) == 1.0f);
  CHECK(exponential(-kInf) == 0.0f);
  CHECK(exponential(kInf) == kInf);
  CHECK(exponential(89.0f) == kInf);
  CHECK(exponential(-104.0f) == 0.0f);
  CHECK(exponential(-103.0f) == std::numeric_limits<float>::denorm_min());
  CHECK(exponential(std::numeric_limits<float>::max()) == kInf);
  CHECK(exponential(std::numeric_limits<float>::lowest()) == 0.0f);
  CHECK(std::isnan(exponential(std::numeric_limits<float>::quiet_NaN())));
}

TEST_CASE("exponential in double errs by less than 1.5 units in the last place") {
  double worst = 0;
  for (double x = -745.0; x < 709.7; x += 0.00737)
    worst = std::max(worst, double_ulps(exponential(x), std::exp(static_cast<long double>(x))));
  CHECK(worst < 1.5);
  CHECK(exponential(0.0) == 1.0);
  CHECK(exponential(-kInfinity) == 0.0);
  CHECK(exponential(-746.0) == 0.0);
  CHECK(exponential(710.0) == kInfinity);
  CHECK(exponential(kInfinity) == kInfinity);
  CHECK(std::isnan(exponential(std::numeric_limits<double>::quiet_NaN())));
}

TEST_CASE("logarithm errs by less than one unit in the last place") {
  double worst = 0;
  for (int i = 0; i < 400000; ++i) {
    const double x = std::bit_cast<double>(static_cast<uint64_t>(i) * 23058430092137ull + 1);  // 2^-1074 up to 2^1000
    worst = std::max(worst, double_ulps(logarithm(x), std::log(static_cast<long double>(x))));
  }
  for (double x = 0.5; x < 2.0; x += 0.00000613)
    worst = std::max(worst, double_ulps(logarithm(x), std::log(static_cast<long double>(x))));
  CHECK(worst < 1.0);
  CHECK(logarithm(1.0) == 0.0);
  CHECK(logarithm(0.0) == -kInfinity);
  CHECK(logarithm(-0.0) == -kInfinity);
  CHECK(logarithm(kInfinity) == kInfinity);
  CHECK(std::isnan(logarithm(-1.0)));
  CHECK(std::isnan(logarithm(std::numeric_limits<double>::quiet_NaN())));
  CHECK(logarithm(1.0f) == 0.0f);
  CHECK(logarithm(0.0f) == -kInf);
  CHECK(float_ulps(logarithm(3.0f), std::log(3.0)) <= 0.5);
}

TEST_CASE("whole_power is the product") {
  CHECK(whole_power(0.9, 0) == 1.0);
  CHECK(whole_power(0.9, 1) == 0.9);
  CHECK(whole_power(2.0, 100) == 0x1p100);
  CHECK(whole_power(0.999, 1000) == Approx(std::pow(0.999, 1000)).epsilon(1e-13));
}

}  // namespace motley::kernels
