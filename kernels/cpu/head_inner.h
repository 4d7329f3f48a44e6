// The head's passes over one row of logits, vectorized for float at run time. The bits of the loops in
// kernels/cpu/lanes.h, which double uses.
#pragma once

#include <cstdint>

namespace motley::kernels::cpu {

/// The largest value, NaN left out; -inf for count = 0.
float row_largest(const float* values, int64_t count);
/// Sum of exp(values[i] - shift) in 16 virtual lanes.
float row_exp_sum(const float* values, int64_t count, float shift);
/// Sum of p log p with log p = values[i] - lse; what has no mass adds nothing, though its log is infinite.
float row_p_log_p(const float* values, int64_t count, float lse);
/// values[i] becomes a p - c p (log p + entropy): what every member of the support has of dL/dz.
void row_cotangents(float* values, int64_t count, float lse, float entropy, float a, float c);
/// values[i] /= divisor.
void row_divide(float* values, int64_t count, float divisor);

}  // namespace motley::kernels::cpu
