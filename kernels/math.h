// Exponential and logarithm of our own, the same code for host and device: results never depend on a maths library.
// Branch-free, so that loops over them vectorize. Errors: exponential below 1.5 units in the last place (float and
// double, subnormal results included), logarithm below 1; tests/kernels/math_test.cpp measures them.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/formats.h"

namespace motley::kernels {

namespace detail {
/// a where the condition holds, else b. Masks, because GCC turns a row of conditional expressions into branches.
MOTLEY_HD inline float select(bool condition, float a, float b) {
  const uint32_t mask = 0u - static_cast<uint32_t>(condition);
  return std::bit_cast<float>((std::bit_cast<uint32_t>(a) & mask) | (std::bit_cast<uint32_t>(b) & ~mask));
}
MOTLEY_HD inline double select(bool condition, double a, double b) {
  const uint64_t mask = uint64_t{0} - static_cast<uint64_t>(condition);
  return std::bit_cast<double>((std::bit_cast<uint64_t>(a) & mask) | (std::bit_cast<uint64_t>(b) & ~mask));
}
}  // namespace detail

/// e^x. NaN gives NaN, -inf and what underflows 0, +inf and what overflows infinity.
MOTLEY_HD inline float exponential(float x) {
  // e^-104 rounds to 0 and e^89 to infinity. NaN fails both comparisons and stays.
  const bool vanishes = x < -104.0f;
  const float clamped = detail::select(x > 89.0f, 89.0f, detail::select(vanishes, -104.0f, x));
  // Adding 1.5 * 2^23 rounds to an integer in the low bits.
  const float shifted = std::fma(clamped, 0x1.715476p+0f, 0x1.8p23f);
  const float n = shifted - 0x1.8p23f;
  // ln 2 in two parts; what is left lies in [-ln 2 / 2, ln 2 / 2].
  const float r = std::fma(n, -0x1.7f7d1cp-20f, std::fma(n, -0x1.62e4p-1f, clamped));
  // Coefficients of Cephes' expf (Moshier).
  float p = std::fma(1.9875691500e-4f, r, 1.3981999507e-3f);
  p = std::fma(p, r, 8.3334519073e-3f);
  p = std::fma(p, r, 4.1665795894e-2f);
  p = std::fma(p, r, 1.6666665459e-1f);
  p = std::fma(p, r, 5.0000001201e-1f);
  p = detail::select(vanishes, 0.0f, std::fma(p * r, r, r) + 1.0f);
  // 2^n in two factors, each a normal number: only the second product rounds. (Without the 0 above, which e^-inf takes
  // often, that product would be subnormal, and slow.)
  const int32_t exponent = std::bit_cast<int32_t>(shifted) - 0x4b400000;
  const int32_t half = exponent >> 1;
  const float first = std::bit_cast<float>((half + 127) << 23);
  const float second = std::bit_cast<float>((exponent - half + 127) << 23);
  return p * first * second;
}

MOTLEY_HD inline double exponential(double x) {
  const bool vanishes = x < -746.0;
  const double clamped = detail::select(x > 710.0, 710.0, detail::select(vanishes, -746.0, x));
  const double shifted = std::fma(clamped, 0x1.71547652b82fep+0, 0x1.8p52);
  const double n = shifted - 0x1.8p52;
  const double r = std::fma(n, -0x1.abc9e3b39803fp-56, std::fma(n, -0x1.62e42fefa39efp-1, clamped));
  // Taylor's series: the first term left out is 2^-57 of the result.
  double p = 1.0 / 6227020800.0;
  p = std::fma(p, r, 1.0 / 479001600.0);
  p = std::fma(p, r, 1.0 / 39916800.0);
  p = std::fma(p, r, 1.0 / 3628800.0);
  p = std::fma(p, r, 1.0 / 362880.0);
  p = std::fma(p, r, 1.0 / 40320.0);
  p = std::fma(p, r, 1.0 / 5040.0);
  p = std::fma(p, r, 1.0 / 720.0);
  p = std::fma(p, r, 1.0 / 120.0);
  p = std::fma(p, r, 1.0 / 24.0);
  p = std::fma(p, r, 1.0 / 6.0);
  p = std::fma(p, r, 0.5);
  p = detail::select(vanishes, 0.0, std::fma(p * r, r, r) + 1.0);
  const int64_t exponent = std::bit_cast<int64_t>(shifted) - 0x4338000000000000;
  const int64_t half = exponent >> 1;
  const double first = std::bit_cast<double>((half + 1023) << 52);
  const double second = std::bit_cast<double>((exponent - half + 1023) << 52);
  return p * first * second;
}

/// ln x. 0 gives -inf, negative numbers and NaN give NaN, +inf gives +inf.
MOTLEY_HD inline double logarithm(double x) {
  if (!(x > 0.0)) return x == 0.0 ? -INFINITY : NAN;
  if (x == INFINITY) return x;
  const bool subnormal = x < 0x1p-1022;
  const int64_t bits = std::bit_cast<int64_t>(subnormal ? x * 0x1p54 : x);
  // m in [sqrt(1/2), sqrt(2)), x = m 2^exponent.
  const int64_t exponent = (bits - 0x3fe6a09e667f3bcd) >> 52;
  const double m = std::bit_cast<double>(bits - (exponent << 52));
  const double n = static_cast<double>(exponent - (subnormal ? 54 : 0));
  // ln m = 2 atanh(s) = 2 s + 2 s^3 / 3 + ...; |s| < 0.1716, so the first term left out is below 2^-60 of the result.
  const double f = m - 1.0, s = f / (2.0 + f), z = s * s;
  double p = 1.0 / 23.0;
  p = std::fma(p, z, 1.0 / 21.0);
  p = std::fma(p, z, 1.0 / 19.0);
  p = std::fma(p, z, 1.0 / 17.0);
  p = std::fma(p, z, 1.0 / 15.0);
  p = std::fma(p, z, 1.0 / 13.0);
  p = std::fma(p, z, 1.0 / 11.0);
  p = std::fma(p, z, 1.0 / 9.0);
  p = std::fma(p, z, 1.0 / 7.0);
  p = std::fma(p, z, 1.0 / 5.0);
  p = std::fma(p, z, 1.0 / 3.0);
  // ln(1 + f) = f - f^2/2 + s (f^2/2 + 2 z p): the large part is exact, the correction small (as in fdlibm).
  const double square = 0.5 * f * f;
  const double correction = s * (square + 2.0 * z * p);
  const double low = std::fma(n, 0x1.abc9e3b39803fp-56, correction);
  return std::fma(n, 0x1.62e42fefa39efp-1, f - (square - low));
}
MOTLEY_HD inline float logarithm(float x) { return static_cast<float>(logarithm(static_cast<double>(x))); }

/// x to a whole power, by squaring.
MOTLEY_HD inline double whole_power(double x, int64_t power) {
  double result = 1.0;
  for (; power > 0; power >>= 1) {
    if ((power & 1) != 0) result *= x;
    x *= x;
  }
  return result;
}

}  // namespace motley::kernels
