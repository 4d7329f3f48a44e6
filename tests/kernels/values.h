// Inputs of the kernel tests: fixed seeds, no maths library.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/dtype.h"
#include "kernels/parallel.h"

namespace motley::kernels {

/// Uniform in [-1, 1), the same on every machine.
class Values {
 public:
  explicit Values(uint64_t seed) : state_(seed * 2654435761u + 12345) {}
  double next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<double>(static_cast<int64_t>(state_) >> 11) * 0x1p-52;
  }
  int64_t below(int64_t bound) { return static_cast<int64_t>((next() + 1.0) * 0.5 * static_cast<double>(bound)); }

 private:
  uint64_t state_;
};

template <class T>
T as(double x) {
  return static_cast<T>(static_cast<Compute<T>>(x));
}
template <class T>
double real(T x) {
  return static_cast<double>(static_cast<Compute<T>>(x));
}

template <class T>
std::vector<T> values(int64_t count, uint64_t seed, double scale = 1.0) {
  Values draw(seed);
  std::vector<T> out(static_cast<size_t>(count));
  for (T& x : out) x = as<T>(draw.next() * scale);
  return out;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

/// Unit roundoff of a storage type.
template <class T>
double unit() {
  return dtype_of<T>() == DType::f64   ? 0x1p-53
         : dtype_of<T>() == DType::f32 ? 0x1p-24
         : dtype_of<T>() == DType::f16 ? 0x1p-11
                                       : 0x1p-8;
}

/// What one rounding to a storage type moves a value by at most.
template <class T>
double rounding(double value) {
  const double subnormal = dtype_of<T>() == DType::f64   ? 0.0
                           : dtype_of<T>() == DType::f16 ? 0x1p-25
                           : dtype_of<T>() == DType::f32 ? 0x1p-150
                                                         : 0x1p-134;
  return unit<T>() * std::fabs(value) + subnormal;
}

/// Half a unit in the last place of a value, and of the smallest subnormal, of the formats that a cache may have.
inline double format_rounding(Format format, double value) {
  switch (format) {
    case Format::fp64:
      return 0x1p-53 * value;
    case Format::fp32:
      return 0x1p-24 * value + 0x1p-150;
    case Format::bf16:
      return 0x1p-8 * value + 0x1p-134;
    case Format::fp16:
      return 0x1p-11 * value + 0x1p-25;
    case Format::e4m3:
      return 0x1p-4 * value + 0x1p-10;
    default:  // e5m2
      return 0x1p-3 * value + 0x1p-17;
  }
}

/// The smallest subnormal of a storage type.
template <class T>
double smallest() {
  return dtype_of<T>() == DType::f64   ? 0x1p-1074
         : dtype_of<T>() == DType::f32 ? 0x1p-149
         : dtype_of<T>() == DType::f16 ? 0x1p-24
                                       : 0x1p-133;
}

/// The values with NaN, infinities, zeros of both signs, subnormals and huge numbers among them, `step` apart.
template <class T>
std::vector<T> with_specials(std::vector<T> x, size_t step) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double special[] = {std::numeric_limits<double>::quiet_NaN(),
                            kInfinity,
                            -0.0,
                            smallest<T>(),
                            -kInfinity,
                            6e4,
                            0.0,
                            -3 * smallest<T>(),
                            -1e38,
                            1e-30,
                            88.5,
                            -103.9};
  for (size_t i = 0; i < x.size(); i += step) x[i] = as<T>(special[i / step % std::size(special)]);
  return x;
}

/// Sets the threads of this thread for a scope.
struct Threads {
  explicit Threads(int count) { set_compute_threads(count); }
  ~Threads() { set_compute_threads(1); }
};

}  // namespace motley::kernels
