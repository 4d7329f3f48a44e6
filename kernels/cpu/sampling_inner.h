// The passes over a whole row of logits that sampling makes, one body per instruction set, chosen at run time; every
// bit of their results is the same on all of them. Sums have fixed orders: lanes by index, blocks ascending.
#pragma once

#include <cstdint>

namespace motley::kernels::cpu {

/// Elements of one partial sum of masses: blocks start at multiples of it.
constexpr int64_t kMassBlock = 1024;
constexpr int64_t mass_blocks(int64_t count) { return (count + kMassBlock - 1) / kMassBlock; }
/// What `split` and `emit` may write beyond the elements that they keep.
constexpr int64_t kSlack = 16;

/// scaled[i] = logits[i] / divisor; returns the largest, or NaN if there is a NaN. -inf for count = 0.
float scale_row(const float* logits, int64_t count, float divisor, float* scaled);

/// e[i] = exponential(z[i] - largest), where no z is NaN or above `largest`, which is finite. Returns their sum in 16
/// virtual lanes, as log_sum_exp (kernels/head.h) adds them.
float exponentials(const float* z, int64_t count, float largest, float* e);

/// sums[b] = the mass (kernels/sampling_mass.h) of block b of e; returns that of all.
int64_t masses_of(const float* e, int64_t count, int64_t* sums);

/// Elements with z > high, and those with low <= z <= high, which are copied in order. Weights are the masses of e;
/// a null e weighs every element 1.
struct Split {
  int64_t above = 0, between = 0;  // weights
  int64_t kept = 0;                // elements between
};
Split split(const float* z, const float* e, int64_t count, float low, float high, float* kept_z, float* kept_e);

/// Writes the places with z > cut, and the first `ties` of those with z == cut, ascending; and their e, unless null.
/// Returns how many there are.
int64_t emit(const float* z, const float* e, int64_t count, float cut, int64_t ties, int32_t* places, float* kept_e);

}  // namespace motley::kernels::cpu
