// How a key or value is held in the cache: code = cast(x / scale), value = code * scale rounded to the type that the
// packed pass stores. round_values and the cache of every device use these same functions, so all see the same bits.
#pragma once

#include "kernels/elements.h"

namespace motley::kernels {

template <Format F>
struct KvCode {
  using type = uint8_t;
};
template <>
struct KvCode<Format::fp64> {
  using type = double;
};
template <>
struct KvCode<Format::fp32> {
  using type = float;
};
template <>
struct KvCode<Format::bf16> {
  using type = bf16;
};
template <>
struct KvCode<Format::fp16> {
  using type = fp16;
};

template <Format F, class T>
MOTLEY_HD inline typename KvCode<F>::type encode_kv(T x, Compute<T> scale) {
  const Compute<T> scaled = load(x) / scale;
  if constexpr (F == Format::fp64)
    return static_cast<double>(scaled);
  else if constexpr (F == Format::fp32)
    return static_cast<float>(scaled);
  else if constexpr (F == Format::bf16)
    return store<bf16>(static_cast<float>(scaled));
  else if constexpr (F == Format::fp16)
    return store<fp16>(static_cast<float>(scaled));
  else
    return static_cast<uint8_t>(encode<F>(static_cast<float>(scaled)));
}

template <Format F, class T>
MOTLEY_HD inline T decode_kv(typename KvCode<F>::type code, Compute<T> scale) {
  if constexpr (F == Format::e4m3 || F == Format::e5m2)
    return store<T>(Compute<T>{decode<F>(code)} * scale);
  else
    return store<T>(static_cast<Compute<T>>(load(code)) * scale);
}

/// Calls body(std::integral_constant<Format, F>) for the formats that a cache may have.
template <class Body>
inline void visit_kv_format(Format format, Body body) {
  switch (format) {
    case Format::fp64:
      return body(std::integral_constant<Format, Format::fp64>());
    case Format::fp32:
      return body(std::integral_constant<Format, Format::fp32>());
    case Format::bf16:
      return body(std::integral_constant<Format, Format::bf16>());
    case Format::fp16:
      return body(std::integral_constant<Format, Format::fp16>());
    case Format::e4m3:
      return body(std::integral_constant<Format, Format::e4m3>());
    case Format::e5m2:
      return body(std::integral_constant<Format, Format::e5m2>());
    default:
      throw std::logic_error("no cache has this format");
  }
}

}  // namespace motley::kernels
