// Elements of every storage type to and from what they are computed in. The loops vectorize.
#pragma once

#include <cmath>

#include "kernels/dtype.h"

namespace motley::kernels::cpu {

template <class T>
inline Compute<T> load(T x) {
  return static_cast<Compute<T>>(x);
}
/// Branch-free form of kernels/formats.h: the same bits, but loops over it vectorize.
inline float load(fp16 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(x.bits & 0x7fffu) << 13;
  const float small = static_cast<float>(static_cast<int32_t>(magnitude >> 13)) * 0x1p-24f;
  const uint32_t normal = magnitude + (magnitude >= 0x0f800000u ? 0x70000000u : 0x38000000u);
  const uint32_t bits = magnitude < 0x00800000u ? std::bit_cast<uint32_t>(small) : normal;
  return std::bit_cast<float>(sign | bits);
}

template <class T>
inline T store(Compute<T> x) {
  return static_cast<T>(x);
}
template <>
inline bf16 store<bf16>(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t quiet = (bits >> 16) | 0x40u;
  bf16 y;
  y.bits = static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
  return y;
}
template <>
inline fp16 store<fp16>(float x) {
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

template <class T>
inline void load(Compute<T>* out, const T* in, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = load(in[i]);
}
template <class T>
inline void store(T* out, const Compute<T>* in, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = store<T>(in[i]);
}

/// The values of `in`: itself where it is stored as computed, else decoded into `buffer`.
template <class T>
inline const Compute<T>* loaded(const T* in, Compute<T>* buffer, int64_t count) {
  if constexpr (std::is_same_v<T, Compute<T>>) {
    return in;
  } else {
    load(buffer, in, count);
    return buffer;
  }
}
/// Where to compute what store_from writes to `out`: there itself, or `buffer`.
template <class T>
inline Compute<T>* compute_into(T* out, Compute<T>* buffer) {
  if constexpr (std::is_same_v<T, Compute<T>>)
    return out;
  else
    return buffer;
}
template <class T>
inline void store_from(T* out, const Compute<T>* computed, int64_t count) {
  if constexpr (!std::is_same_v<T, Compute<T>>) store(out, computed, count);
}

}  // namespace motley::kernels::cpu
