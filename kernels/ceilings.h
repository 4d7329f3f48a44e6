// What this machine can do at best, for rooflines: fused multiply-adds out of registers, and reading memory. Used by
// `motley bench`. Each runs on the calling thread alone; the caller times it.
#pragma once

#include <cstdint>

namespace motley::kernels::cpu {

/// Runs `rounds` rounds of independent chains of vector multiply-adds; gives the floating-point operations done.
/// `result` gets a number made of all chains, so that none can be left out.
double run_multiply_adds(int64_t rounds, float* result);
/// Reads `count` floats once, in order, and gives their sum.
float read_floats(const float* values, int64_t count);
/// The instruction set that the kernels choose on this machine.
const char* instruction_set_name();

}  // namespace motley::kernels::cpu
