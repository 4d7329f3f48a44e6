#include "kernels/emulator/matrix_unit.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace motley::kernels::emulator {
namespace {

constexpr int kZero = -100000;  // an exponent below all

/// floor(log2 |x|) of a finite number.
int exponent_of(float x) {
  const auto field = static_cast<int>(std::bit_cast<uint32_t>(x) >> 23 & 0xffu);
  if (field != 0) return field - 127;
  return x == 0.0f ? kZero : std::ilogb(x);
}
double power_of_two(int exponent) { return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52); }

/// x towards zero at `fraction` bits below its leading one, and at the smallest subnormal float.
float truncated(double x, int fraction) {
  if (x == 0.0) return 0.0f;
  const int unit = std::max(std::ilogb(x) - fraction, -149);
  return static_cast<float>(std::trunc(x * power_of_two(-unit)) * power_of_two(unit));
}

}  // namespace

constinit thread_local UnitWidth warpgroup_unit = kWideUnit;

float unit_sum(const float* a, const float* b, int count, float c, UnitWidth width) {
  int top = exponent_of(c);
  bool finite = std::isfinite(c);
  for (int i = 0; i < count; ++i) {
    finite = finite && std::isfinite(a[i]) && std::isfinite(b[i]);
    if (a[i] != 0.0f && b[i] != 0.0f) top = std::max(top, exponent_of(a[i]) + exponent_of(b[i]));
  }
  if (!finite) {
    double sum = c;
    for (int i = 0; i < count; ++i) sum += static_cast<double>(a[i]) * b[i];
    return static_cast<float>(sum);
  }
  if (top == kZero) return 0.0f;
  // Integers below 2^26 each: their sum is exact in double. (A top of -298 + ... is far from double's own limits.)
  const double scale = power_of_two(width.aligned - top), unit = power_of_two(top - width.aligned);
  double sum = std::trunc(c * scale);
  for (int i = 0; i < count; ++i) sum += std::trunc(static_cast<double>(a[i]) * b[i] * scale);
  return truncated(sum * unit, width.result);
}

}  // namespace motley::kernels::emulator
