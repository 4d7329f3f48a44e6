// Products of a warpgroup, four warps: wgmma of the PTX ISA ("Asynchronous Warpgroup Level Matrix Instructions"), which
// compute capability 9.0 alone has (sm_90a). Under nvcc the instructions; on the host their documented layouts, with
// the sums of kernels/emulator/matrix_unit.h: there a product is done when it is issued, and no wait is missed.
//
// D [64, N] += A [64, 16] B^T with B [N, 16]. Warp w of the warpgroup has rows [16 w, 16 w + 16) of A and D in
// registers, in the places of the mma of kernels/cuda/fragments.h (ibid., "Register Fragments for
// wgmma.mma_async.m64nNk16"). B lies in shared memory, where a matrix descriptor says.
#pragma once

#include "kernels/cuda/fragments.h"

namespace motley::kernels::GPU_NAMESPACE {

inline constexpr int kWarpgroupRows = 64, kWarpgroupDepth = 16;
inline constexpr uint32_t kSwizzledRow = 128;                // bytes: 64 elements of 16 bits
inline constexpr uint32_t kSwizzledRows = 8 * kSwizzledRow;  // the pattern repeats, and is aligned, to this

/// The descriptor of B in rows of 128 bytes, eight of which are followed by the next eight, with chunk c of 16 bytes of
/// row r at place c ^ (r % 8): the 128-byte swizzle, which hardware applies to addresses; so `address`, in shared
/// memory, is that of row 0's first chunk, whose k is a multiple of 16, before it is swizzled. (ibid., "Matrix
/// Descriptor Format": bits 0-13 the address / 16, 16-29 the leading dimension, which swizzled rows do not use, 32-45
/// the stride of eight rows / 16, 49-51 the pattern's offset, 62-63 the swizzle, 1 for 128 bytes.)
MOTLEY_HD constexpr uint64_t swizzled_descriptor(uint32_t address) {
  return uint64_t{(address & 0x3ffffu) >> 4} | uint64_t{1} << 16 | uint64_t{kSwizzledRows >> 4} << 32 |
         uint64_t{1} << 62;
}
/// The same, k columns (a multiple of 16, below 64) further on.
MOTLEY_HD constexpr uint64_t advanced(uint64_t descriptor, int k) {
  return descriptor + (static_cast<uint64_t>(k) * 2 >> 4);
}

#ifdef __CUDACC__

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
inline constexpr bool kHasWarpgroups = true;
#else
inline constexpr bool kHasWarpgroups = false;
#endif
/// For a kernel that is launched where it has no body.
GPU_DEVICE void refuse_warpgroups() { __trap(); }

/// The first address of dynamic shared memory that swizzled rows may begin at, at most 1008 bytes on.
GPU_DEVICE unsigned char* swizzle_aligned(unsigned char* memory) {
  return memory + (kSwizzledRows - shared_address(memory) % kSwizzledRows) % kSwizzledRows;
}

/// What this thread stored to shared memory, copies included, may be read by wgmma after the next barrier.
GPU_DEVICE void publish_to_warpgroups() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
/// Keeps what the compiler does with registers of products on this side of the instructions around: it does not know
/// that a product goes on after its own.
template <int N, int K>
GPU_DEVICE void hold_registers(float (&c)[N][4], uint32_t (&a)[K][4]) {
  GPU_UNROLL
  for (int i = 0; i < 4 * N; ++i) asm volatile("" : "+f"(c[i / 4][i % 4])::"memory");
  GPU_UNROLL
  for (int i = 0; i < 4 * K; ++i) asm volatile("" : "+r"(a[i / 4][i % 4])::"memory");
}
/// Between what wrote the registers of products and the first multiply_warpgroup: all sums and first operands.
template <int N, int K>
GPU_DEVICE void begin_warpgroup_products(float (&c)[N][4], uint32_t (&a)[K][4]) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  hold_registers(c, a);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
/// After the last: waits for all of them. Only then may their registers and shared memory be touched.
template <int N, int K>
GPU_DEVICE void finish_warpgroup_products(float (&c)[N][4], uint32_t (&a)[K][4]) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
  hold_registers(c, a);
#endif
}

#define MOTLEY_SUMS(j) "+f"(c[j][0]), "+f"(c[j][1]), "+f"(c[j][2]), "+f"(c[j][3])
#define MOTLEY_WGMMA(type)                                                                                \
  asm volatile(                                                                                           \
      "{.reg .pred p;\nsetp.eq.u32 p, 0, 0;\n"                                                            \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type                                        \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                          \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "                  \
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                  \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "                 \
      "{%64, %65, %66, %67}, %68, p, 1, 1, 0;}"                                                           \
      : MOTLEY_SUMS(0), MOTLEY_SUMS(1), MOTLEY_SUMS(2), MOTLEY_SUMS(3), MOTLEY_SUMS(4), MOTLEY_SUMS(5),   \
        MOTLEY_SUMS(6), MOTLEY_SUMS(7), MOTLEY_SUMS(8), MOTLEY_SUMS(9), MOTLEY_SUMS(10), MOTLEY_SUMS(11), \
        MOTLEY_SUMS(12), MOTLEY_SUMS(13), MOTLEY_SUMS(14), MOTLEY_SUMS(15)                                \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)                                                \
      : "memory")

/// c += A B^T with N = 128; all four warps of the warpgroup come here together.
template <Operand O>
GPU_DEVICE void multiply_warpgroup(float (&c)[16][4], const uint32_t (&a)[4], uint64_t b) {
  static_assert(O == Operand::bf16 || O == Operand::fp16);
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  if constexpr (O == Operand::bf16)
    MOTLEY_WGMMA("bf16");
  else
    MOTLEY_WGMMA("f16");
#endif
}
#undef MOTLEY_WGMMA
#undef MOTLEY_SUMS

#else

inline constexpr bool kHasWarpgroups = true;
GPU_DEVICE void refuse_warpgroups() {}

/// Dynamic shared memory begins at this address, as after arrays of fixed size.
inline constexpr uint32_t kDynamicAddress = 0x430;
GPU_DEVICE uint32_t shared_address(const unsigned char* data) {
  return kDynamicAddress + static_cast<uint32_t>(data - emulator::dynamic_shared());
}
GPU_DEVICE unsigned char* swizzle_aligned(unsigned char* memory) {
  return memory + (kSwizzledRows - shared_address(memory) % kSwizzledRows) % kSwizzledRows;
}
GPU_DEVICE void publish_to_warpgroups() {}
template <int N, int K>
GPU_DEVICE void begin_warpgroup_products(float (&)[N][4], uint32_t (&)[K][4]) {}
template <int N, int K>
GPU_DEVICE void finish_warpgroup_products(float (&)[N][4], uint32_t (&)[K][4]) {}

/// The address of columns [k, k + 8) of row r of what a descriptor describes.
constexpr uint32_t described_address(uint64_t descriptor, int r, int k) {
  const auto start = static_cast<uint32_t>(descriptor & 0x3fffu) << 4;
  const auto stride = static_cast<uint32_t>(descriptor >> 32 & 0x3fffu) << 4;
  const uint32_t linear = start + static_cast<uint32_t>(r / 8) * stride + static_cast<uint32_t>(r % 8) * kSwizzledRow +
                          static_cast<uint32_t>(k) * 2;
  return linear ^ (linear >> 7 & 7u) << 4;
}

template <Operand O, int N>
GPU_DEVICE void multiply_warpgroup(float (&c)[N][4], const uint32_t (&a)[4], uint64_t b,
                                   const Where& where = Where::current()) {
  emulator::meet(a, sizeof(a), where);
  const int lane = thread() % kWarp, g = lane / 4, t = lane % 4;
  float rows[2][kWarpgroupDepth], col[kWarpgroupDepth];
  for (int q = 0; q < 4; ++q) {
    const auto* row = static_cast<const uint32_t*>(emulator::given(4 * g + q, where));
    for (int j = 0; j < 4; ++j)
      for (int e = 0; e < 2; ++e) rows[j % 2][2 * q + e + 8 * (j / 2)] = operand_value<O>(row[j], e);
  }
  for (int n = 0; n < 2 * N; ++n) {
    for (int k = 0; k < kWarpgroupDepth; k += 8) {
      const uint32_t at = described_address(b, n / 2 * 8 + 2 * t + n % 2, k) - kDynamicAddress;
      const unsigned char* chunk = emulator::dynamic_shared() + at;
      emulator::check_shared(chunk, 16, where);
      for (int e = 0; e < 8; ++e) {
        uint16_t bits;
        std::memcpy(&bits, chunk + 2 * e, 2);
        col[k + e] = operand_value<O>(bits, 0);
      }
    }
    for (int i = 0; i < 2; ++i)
      c[n / 2][2 * i + n % 2] =
          emulator::unit_sum(rows[i], col, kWarpgroupDepth, c[n / 2][2 * i + n % 2], emulator::warpgroup_unit);
  }
}

#endif

}  // namespace motley::kernels::GPU_NAMESPACE
