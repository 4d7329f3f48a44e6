// Matrix fragments of a warp: ldmatrix and mma.sync of the PTX ISA ("Warp-level matrix instructions"). Under nvcc the
// instructions; on the host their documented layouts, with the sums of kernels/emulator/matrix_unit.h.
//
// With g = lane / 4, t = lane % 4 and E elements in a 32-bit register (the first in its lowest bits), an mma of depth
// K = 8 E multiplies A [16, K] by the transpose of B [8, K]:
//   a[j], element e: A[g + 8 (j % 2)][t E + e + 4 E (j / 2)]      j = 0 .. 3
//   b[j], element e: B[g][t E + e + 4 E j]                        j = 0, 1
//   c[i]:            C[g + 8 (i / 2)][2 t + i % 2]                i = 0 .. 3
#pragma once

#include "kernels/cuda/async_copy.h"
#include "kernels/formats.h"
#ifndef __CUDACC__
#include "kernels/emulator/matrix_unit.h"
#endif

namespace motley::kernels::GPU_NAMESPACE {

/// What a 32-bit register of a fragment holds: two bf16 or fp16, one tf32 (a float of which the unit drops the lowest
/// 13 bits), four e4m3 or e5m2 (sm_89 and later).
enum class Operand : uint8_t { bf16, fp16, tf32, e4m3, e5m2 };
template <Operand O>
constexpr int kPerRegister = O == Operand::tf32                         ? 1
                             : O == Operand::e4m3 || O == Operand::e5m2 ? 4
                                                                        : 2;
template <Operand O>
constexpr int kFragmentDepth = 8 * kPerRegister<O>;

#ifdef __CUDACC__

/// A register of two values, each rounded to the type.
template <Operand O>
GPU_DEVICE uint32_t operand_pair(float low, float high) {
  static_assert(O == Operand::bf16 || O == Operand::fp16);
  uint32_t pair;
  if constexpr (O == Operand::bf16)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

/// Matrix i of N (1, 2 or 4) is 8 x 8 elements of 16 bits; lane 8 i + r gives the address of its row r: 16 bytes of
/// shared memory, aligned to 16. r[i] becomes M_i[g][2 t], M_i[g][2 t + 1]; turned: M_i[2 t][g], M_i[2 t + 1][g].
template <bool kTurned, int N>
GPU_DEVICE void load_fragments(uint32_t (&r)[N], const void* row) {
  static_assert(N == 1 || N == 2 || N == 4);
  const uint32_t at = shared_address(row);
  if constexpr (N == 1 && !kTurned)
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r[0]) : "r"(at) : "memory");
  else if constexpr (N == 1)
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(r[0]) : "r"(at) : "memory");
  else if constexpr (N == 2 && !kTurned)
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(at)
                 : "memory");
  else if constexpr (N == 2)
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(at)
                 : "memory");
  else if constexpr (!kTurned)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

#define MOTLEY_MMA(shape, type)                                                       \
  asm volatile("mma.sync.aligned." shape ".row.col.f32." type "." type                \
               ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                       \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

/// c += A B^T. How its products are summed no document says, only that it does not depend on the lane.
template <Operand O>
GPU_DEVICE void multiply_fragments(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  if constexpr (O == Operand::bf16) {
    MOTLEY_MMA("m16n8k16", "bf16");
  } else if constexpr (O == Operand::fp16) {
    MOTLEY_MMA("m16n8k16", "f16");
  } else if constexpr (O == Operand::tf32) {
    MOTLEY_MMA("m16n8k8", "tf32");
  } else {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
    if constexpr (O == Operand::e4m3)
      MOTLEY_MMA("m16n8k32", "e4m3");
    else
      MOTLEY_MMA("m16n8k32", "e5m2");
#else
    __trap();
#endif
  }
}
#undef MOTLEY_MMA

#else

template <Operand O>
GPU_DEVICE uint32_t operand_pair(float low, float high) {
  constexpr Format kFormat = O == Operand::bf16 ? Format::bf16 : Format::fp16;
  return encode<kFormat>(low) | encode<kFormat>(high) << 16;
}

template <bool kTurned, int N>
GPU_DEVICE void load_fragments(uint32_t (&r)[N], const void* row, const Where& where = Where::current()) {
  static_assert(N == 1 || N == 2 || N == 4);
  const int lane = thread() % kWarp, g = lane / 4, t = lane % 4;
  if (lane < 8 * N) emulator::check_shared(row, 16, where);
  emulator::meet(&row, sizeof(row), where);
  const auto at = [&](int matrix, int index) {
    return *static_cast<const uint16_t* const*>(emulator::given(8 * matrix + index, where));
  };
  for (int i = 0; i < N; ++i) {
    const uint32_t low = kTurned ? at(i, 2 * t)[g] : at(i, g)[2 * t];
    const uint32_t high = kTurned ? at(i, 2 * t + 1)[g] : at(i, g)[2 * t + 1];
    r[i] = low | high << 16;
  }
}

/// Element e of a register.
template <Operand O>
GPU_DEVICE float operand_value(uint32_t bits, int e) {
  if constexpr (O == Operand::bf16) return decode<Format::bf16>(bits >> 16 * e & 0xffffu);
  if constexpr (O == Operand::fp16) return decode<Format::fp16>(bits >> 16 * e & 0xffffu);
  if constexpr (O == Operand::tf32) return std::bit_cast<float>(bits & 0xffffe000u);
  if constexpr (O == Operand::e4m3) return decode<Format::e4m3>(bits >> 8 * e & 0xffu);
  if constexpr (O == Operand::e5m2) return decode<Format::e5m2>(bits >> 8 * e & 0xffu);
}

template <Operand O>
GPU_DEVICE void multiply_fragments(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                                   const Where& where = Where::current()) {
  constexpr int kEach = kPerRegister<O>, kDepth = kFragmentDepth<O>;
  constexpr bool kFp8 = O == Operand::e4m3 || O == Operand::e5m2;
  struct Given {
    uint32_t a[4], b[2];
  };
  Given mine;
  std::memcpy(mine.a, a, sizeof(a));
  std::memcpy(mine.b, b, sizeof(b));
  emulator::meet(&mine, sizeof(mine), where);
  const int lane = thread() % kWarp, g = lane / 4, t = lane % 4;
  float rows[2][kDepth], cols[2][kDepth];
  for (int q = 0; q < 4; ++q) {
    const auto* row = static_cast<const Given*>(emulator::given(4 * g + q, where));
    for (int j = 0; j < 4; ++j)
      for (int e = 0; e < kEach; ++e) rows[j % 2][q * kEach + e + 4 * kEach * (j / 2)] = operand_value<O>(row->a[j], e);
    for (int n = 0; n < 2; ++n) {
      const auto* col = static_cast<const Given*>(emulator::given(4 * (2 * t + n) + q, where));
      for (int j = 0; j < 2; ++j)
        for (int e = 0; e < kEach; ++e) cols[n][q * kEach + e + 4 * kEach * j] = operand_value<O>(col->b[j], e);
    }
  }
  for (int i = 0; i < 4; ++i)
    c[i] = emulator::unit_sum(rows[i / 2], cols[i % 2], kDepth, c[i], kFp8 ? emulator::kFp8Unit : emulator::kWideUnit);
}

#endif

}  // namespace motley::kernels::GPU_NAMESPACE
