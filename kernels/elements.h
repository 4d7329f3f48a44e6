// One element of every storage type to and from what it is computed in, the same code for host and device.
#pragma once

#include <cmath>

#include "kernels/dtype.h"

namespace motley::kernels {

template <class T>
MOTLEY_HD inline Compute<T> load(T x) {
  return static_cast<Compute<T>>(x);
}
/// Branch-free form of kernels/formats.h: the same bits, but loops over it vectorize.
MOTLEY_HD inline float load(fp16 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(x.bits & 0x7fffu) << 13;
  const float small = static_cast<float>(static_cast<int32_t>(magnitude >> 13)) * 0x1p-24f;
  const uint32_t normal = magnitude + (magnitude >= 0x0f800000u ? 0x70000000u : 0x38000000u);
  const uint32_t bits = magnitude < 0x00800000u ? std::bit_cast<uint32_t>(small) : normal;
  return std::bit_cast<float>(sign | bits);
}

template <class T>
MOTLEY_HD inline T store(Compute<T> x) {
  return static_cast<T>(x);
}
template <>
MOTLEY_HD inline bf16 store<bf16>(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t quiet = (bits >> 16) | 0x40u;
  bf16 y;
  y.bits = static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
  return y;
}
template <>
MOTLEY_HD inline fp16 store<fp16>(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  // Below 2^-14 adding 0.5 rounds at 2^-24, the last place of a subnormal.
  const uint32_t small = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  const uint32_t normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
  uint32_t code = magnitude < 0x38800000u ? small : normal;
  code = magnitude >= 0x477ff000u ? 0x7c00u : code;  // 65520 and above
  code = magnitude > 0x7f800000u ? 0x7e00u : code;
  fp16 y;
  y.bits = static_cast<uint16_t>(sign | code);
  return y;
}

/// The float next to x whose last bit tells that x lies beside it (round to odd): rounding that once more, to fewer
/// bits, gives what rounding x directly would.
MOTLEY_HD inline float round_to_odd(double x) {
  const float near = static_cast<float>(x);
  const uint32_t bits = std::bit_cast<uint32_t>(near);
  if (static_cast<double>(near) == x || x != x || (bits & 1u) != 0) return near;
  const bool too_large = std::fabs(static_cast<double>(near)) > std::fabs(x);
  return std::bit_cast<float>(too_large ? bits - 1 : bits + 1);
}

/// x in another type, rounded once.
template <class To, class From>
MOTLEY_HD inline To converted(From x) {
  if constexpr (std::is_same_v<To, From>)
    return x;
  else if constexpr (!std::is_same_v<From, double>)
    return store<To>(static_cast<Compute<To>>(load(x)));
  else if constexpr (std::is_same_v<To, float>)
    return static_cast<float>(x);
  else
    return store<To>(round_to_odd(x));
}

}  // namespace motley::kernels
