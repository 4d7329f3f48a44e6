// Matrix products. Contract: an output element is one chain of fused multiply-adds with k ascending (optionally cut
// into tiles of k_tile products whose sums are added in order), so it depends on its row of A, its row of B and K
// alone: never on the other rows, on blocking, on threads or on the instruction set.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/dtype.h"
#include "kernels/packed_layout.h"
#include "kernels/packed_matrix.h"

namespace motley::kernels {

/// Element (r, c) lies at data + (r * row_stride + c * col_stride) elements of `dtype`.
struct ConstMatrix {
  const void* data = nullptr;
  DType dtype = DType::f32;
  int64_t rows = 0, cols = 0, row_stride = 0, col_stride = 1;
};
struct Matrix {
  void* data = nullptr;
  DType dtype = DType::f32;
  int64_t rows = 0, cols = 0, row_stride = 0, col_stride = 1;
};
/// Row-major views, and the transpose of a view.
ConstMatrix row_major(const void* data, DType dtype, int64_t rows, int64_t cols);
Matrix row_major(void* data, DType dtype, int64_t rows, int64_t cols);
ConstMatrix transposed(const ConstMatrix& m);

struct MatmulArgs {
  ConstMatrix a;                         // [M, K]
  ConstMatrix b;                         // [N, K]; unused when the matrix is packed
  const PackedMatrix* packed = nullptr;  // [N, K], on the CPU
  PackedCodes packed_codes;              // [N, K], the same on a device
  Matrix c;                              // [M, N]
  bool accumulate = false;               // chains continue from the value in C (then C must be f32 or f64)
  int64_t k_tile = 0;                    // 0: one chain over K; else sums of k_tile products (each from 0), added in
                                         // order to 0, or to C with accumulate
  // The finish of a float product without accumulate, where C is stored (kernels/cpu/matmul_finish.h): v = ((sum *
  // alpha) * column_factors[n]) * row_factors[m], rounded to C's type; then v = silu(gate) * v and v = residual + v,
  // each rounded, with the bits of the separate kernels silu_mul and add.
  float alpha = 1.0f;
  const float* column_factors = nullptr;  // [N]
  const float* row_factors = nullptr;     // [M]
  ConstMatrix gate;                       // [M, N] of C's type, not C itself; no data: none
  ConstMatrix residual;                   // [M, N] of C's type, may be C itself; no data: none
  // Block scales of an fp8 product (DeepSeek-V3): within 128 products the codes are summed alone, then
  // sum = fma(partial, a_scale * b_scale, sum). Both or neither; with them k_tile is 128.
  const float* a_scales = nullptr;  // [M, ceil(K/128)]
  const float* b_scales = nullptr;  // [ceil(N/b_scale_rows), ceil(K/128)]
  int64_t b_scale_rows = 128;
};

namespace cpu {
/// C = A B^T. f64 operands must be f64 everywhere; other types mix freely and are computed in float; C is rounded to
/// its type once. M, N or K may be 0 (K = 0: C = 0, or unchanged with accumulate).
void matmul(const MatmulArgs& args);
}  // namespace cpu

/// How a product on matrix units is cut into blocks; no bit of it depends on that. warpgroup: wide tiles by the wgmma
/// of compute capability 9.0, whose bits the same promise holds for only where a device was seen to keep it
/// (kernels/device_memory.h, warpgroup_refusal); `automatic` takes it there alone, and k_tile must be a multiple of 64.
enum class UnitTiling : uint8_t { automatic, few_rows, medium, wide, warpgroup };

// On a device: `matmul` has the CPU's bits. `matmul_units` computes on matrix units, with fp32 sums in steps of 16
// products, k ascending: not the CPU's bits, but a row depends on that row alone, and the sum of K products of size S
// errs by at most (K / 16 + 1) 2^-19 S. Throws std::logic_error for what fits_matrix_units says no to, and
// std::runtime_error for warpgroups that a device has not.
namespace cuda {
void matmul(const MatmulArgs& args);
void matmul_units(const MatmulArgs& args, UnitTiling tiling = UnitTiling::automatic);
}  // namespace cuda
namespace emulated {
void matmul(const MatmulArgs& args);
void matmul_units(const MatmulArgs& args, UnitTiling tiling = UnitTiling::automatic);
}  // namespace emulated

/// True for bf16 or fp16 rows of A with rows of B of the same type, or with packed weights that are exact in it: the
/// type itself, e4m3, e5m2 and e2m1, with nv16 scales, and for bf16 with mx32 scales too. k_tile is a multiple of 16.
bool fits_matrix_units(const MatmulArgs& args);
}  // namespace motley::kernels
