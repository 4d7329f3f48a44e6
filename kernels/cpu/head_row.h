// What the head and the sampler do with one row of logits, so that their log-probabilities agree bit for bit.
#pragma once

#include <cstdint>

#include "kernels/head.h"

namespace motley::kernels::cpu {

template <class C>
inline void divide_by_temperature(const C* logits, int64_t count, double temperature, C* out) {
  const C divisor = static_cast<C>(temperature);
  for (int64_t v = 0; v < count; ++v) out[v] = logits[v] / divisor;
}

/// A row's logits over its candidates, by place in the list.
template <class C>
inline void gather_logits(const C* z, const int32_t* ids, int64_t count, C* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = z[ids[i]];
}

}  // namespace motley::kernels::cpu
