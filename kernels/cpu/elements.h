// Arrays of every storage type to and from what they are computed in. The loops vectorize.
#pragma once

#include "kernels/elements.h"

namespace motley::kernels::cpu {

using kernels::load;
using kernels::store;

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
