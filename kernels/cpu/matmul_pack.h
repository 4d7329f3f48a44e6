// Packing of operands for the float product: decoding to float, and the two layouts of a block of rows of A.
#pragma once

#include "kernels/matmul.h"

namespace motley::kernels::cpu {

constexpr int64_t kBlockRows = 8;      // rows of C in one call of the inner kernel
constexpr int64_t kBlockDepth = 1024;  // products between two stores of the accumulators
// The same where B is read in place, across its rows: less of it stays in the caches meanwhile.
constexpr int64_t kStridedDepth = 256;
// Rows of C up to which packing B costs more than reading it in place does.
constexpr int64_t kInPlaceRows = 512;
// Rows of a packed block lie this far apart: no power of two, so that they do not share cache sets.
constexpr int64_t kRowStride = kBlockDepth + 16;
constexpr int64_t kBlockSize = kBlockRows * kRowStride;

/// True when a block of A is packed as [k][kBlockRows] (its columns are contiguous), false for
/// [kBlockRows][kRowStride].
inline bool packs_columns(const ConstMatrix& a) { return a.row_stride == 1 && a.col_stride != 1; }
/// True when whole blocks of A need no packing.
inline bool reads_in_place(const ConstMatrix& a) { return a.dtype == DType::f32 && a.col_stride == 1; }
/// Rows [row, end) and columns [k, k + depth) of A in blocks of kBlockRows rows, kBlockSize apart; zeros beyond `end`.
void pack_blocks(const ConstMatrix& a, int64_t row, int64_t end, int64_t k, int64_t depth, float* out);

}  // namespace motley::kernels::cpu
