// What the bodies of all kernels share: the storage types that they exist for, and how much work pays for a thread.
#pragma once

#include <cstdint>

#define MOTLEY_FOR_EACH_TYPE(body) body(float) body(double) body(bf16) body(fp16)

namespace motley::kernels::cpu {
/// Elements of a pointwise kernel or of a row in one piece of parallel work: about 10 microseconds.
constexpr int64_t kPieceElements = int64_t{1} << 14;
}  // namespace motley::kernels::cpu
