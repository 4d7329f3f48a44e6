// Packing of operands for the float product: decoding to float, and the two layouts of a block of rows of A.
#pragma once

#include "kernels/matmul.h"

namespace motley::kernels::cpu {

constexpr int64_t kBlockRows = 8;      // rows of C in one call of the inner kernel
constexpr int64_t kBlockDepth = 1024;  // products between two stores of the accumulators
// Rows of a packed block lie this far apart: no power of two, so that they do not share cache sets.
constexpr int64_t kRowStride = kBlockDepth + 16;
constexpr int64_t kBlockSize = kBlockRows * kRowStride;

/// True when a block of A is packed as [k][kBlockRows] (its columns are contiguous), false for
/// [kBlockRows][kRowStride].
inline bool packs_columns(const ConstMatrix& a) { return a.row_stride == 1 && a.col_stride != 1; }
/// True when whole blocks of A need no packing.
inline bool reads_in_place(const ConstMatrix& a) { return a.dtype == DType::f32 && a.col_stride == 1; }
/// Rows [row, row + kBlockRows) and columns [k, k + depth) of A, zeros beyond M.
void pack_block(const ConstMatrix& a, int64_t row, int64_t k, int64_t depth, float* out);

}  // namespace motley::kernels::cpu
