// What a matrix unit makes of the products of one output: a model. What real units do is not documented: measurements
// find exact products, aligned to the largest and truncated, summed without rounding in between, and a result that is
// truncated, with widths that differ by architecture (Fasi, Higham, Mikaitis and Pranesh 2021, PeerJ Computer Science
// 7:e330; MMA-Sim, arXiv:2511.10909; Khattak and Mikaitis, arXiv:2512.07004). Chosen here is one step over the whole
// depth of an instruction; for 8-bit operands it is the step of kernels/hopper_fp8.h.
#pragma once

#include <cstdint>

namespace motley::kernels::emulator {

struct UnitWidth {
  int aligned;  // bits kept below the largest exponent
  int result;   // fraction bits of the sum
};
inline constexpr UnitWidth kWideUnit{24, 23};  // bf16, fp16 and tf32 operands
inline constexpr UnitWidth kFp8Unit{13, 13};
/// Of products on warpgroups: kWideUnit, until a test gives this thread's device another, as a real one may have.
extern constinit thread_local UnitWidth warpgroup_unit;

/// a[i] b[i] over `count` (at most 32) and c, all truncated towards zero at 2^(E - aligned), E the largest exponent
/// among them (a product's is the sum of its operands'; zeros do not count), summed exactly, and truncated. Infinities
/// and NaN as in a sum of floats; what passes the largest float is an infinity.
float unit_sum(const float* a, const float* b, int count, float c, UnitWidth width);

}  // namespace motley::kernels::emulator
