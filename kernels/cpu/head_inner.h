// The head's passes over one row of logits, vectorized for float at run time. The bits of the loops in
// kernels/cpu/lanes.h, which double uses.
#pragma once

#include <cstdint>

#include "kernels/math.h"

namespace motley::kernels::cpu {

/// The largest value, NaN left out; -inf for count = 0.
float row_largest(const float* values, int64_t count);
/// Sum of exp(values[i] - shift) in 16 virtual lanes.
float row_exp_sum(const float* values, int64_t count, float shift);
/// Sum of p log p with log p = values[i] - lse; what has no mass adds nothing, though its log is infinite.
float row_p_log_p(const float* values, int64_t count, float lse);
/// out[i] = a p - c p (log p + entropy) with log p = values[i] - lse: what every member of the support has of dL/dz.
/// `out` may be `values`.
void row_cotangents(const float* values, float* out, int64_t count, float lse, float entropy, float a, float c);
inline void row_cotangents(const double* values, double* out, int64_t count, double lse, double entropy, double a,
                           double c) {
  for (int64_t i = 0; i < count; ++i) {
    const double log_p = values[i] - lse, p = exponential(log_p);
    const double slope = c == 0.0 ? a : a - c * (log_p + entropy);
    out[i] = c != 0.0 && p == 0.0 ? 0.0 : slope * p;
  }
}
/// values[i] /= divisor.
void row_divide(float* values, int64_t count, float divisor);
inline void row_divide(double* values, int64_t count, double divisor) {
  for (int64_t i = 0; i < count; ++i) values[i] /= divisor;
}

}  // namespace motley::kernels::cpu
