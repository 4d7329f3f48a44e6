// Products of rows that are sorted by group, each group by weights of its own, as of a mixture of experts: all groups
// in one launch. Contract: a row has the bits of the plain product of its group (kernels/matmul.h).
#pragma once

#include <cstdint>

#include "kernels/matmul.h"

namespace motley::kernels {

struct GroupedMatmulArgs {
  /// As one product of M rows with N outputs, but for: b [groups * N, K]; packed: an array of `groups` matrices [N, K];
  /// packed_codes: the first of `groups` matrices of N rows, each where the last panel of the one before ends
  /// (kernels/packed_device.h copies them so); column_factors [groups, N]; b_scales [groups, ceil(N / b_scale_rows),
  /// ceil(K / 128)]. c.cols is N.
  MatmulArgs all;
  int64_t groups = 0;
  const int64_t* offsets = nullptr;  // [groups + 1] where the rows are: group g has [offsets[g], offsets[g + 1]);
                                     // ascending from 0 to M
};

/// Rows [first, first + count) of a matrix, none of one without data.
template <class M>
MOTLEY_HD M rows_of(M m, int64_t first, int64_t count) {
  m.rows = count;
  if (m.data == nullptr) return m;
  const size_t size = m.dtype == DType::f64 ? 8 : m.dtype == DType::f32 ? 4 : 2;
  const auto bytes = first * m.row_stride * static_cast<int64_t>(size);
  if constexpr (std::is_same_v<M, Matrix>)
    m.data = static_cast<unsigned char*>(m.data) + bytes;
  else
    m.data = static_cast<const unsigned char*>(m.data) + bytes;
  return m;
}

/// The product of group g, whose rows are [begin, end).
MOTLEY_HD inline MatmulArgs product_of_group(const GroupedMatmulArgs& grouped, int64_t g, int64_t begin, int64_t end) {
  MatmulArgs args = grouped.all;
  const int64_t n = args.c.cols, panels = (n + kPanelRows - 1) / kPanelRows, blocks = (args.a.cols + 127) / 128;
  args.a = rows_of(args.a, begin, end - begin);
  args.b = rows_of(args.b, g * n, n);
  args.c = rows_of(args.c, begin, end - begin);
  args.gate = rows_of(args.gate, begin, end - begin);
  args.residual = rows_of(args.residual, begin, end - begin);
  if (args.packed != nullptr) args.packed += g;
  if (args.packed_codes.codes != nullptr) {
    PackedCodes& b = args.packed_codes;
    b.codes += g * panels * panel_bytes(b.format, b.cols);
    b.block_codes += g * panels * panel_block_bytes(b.scaling, b.cols);
  }
  if (args.column_factors != nullptr) args.column_factors += g * n;
  if (args.row_factors != nullptr) args.row_factors += begin;
  if (args.a_scales != nullptr) {
    args.a_scales += begin * blocks;
    args.b_scales += g * ((n + args.b_scale_rows - 1) / args.b_scale_rows) * blocks;
  }
  return args;
}

// matmul_grouped: groups of `matmul`, with the CPU's bits everywhere. matmul_grouped_units: groups of `matmul_units`,
// with its refusals; there are no grouped products on warpgroups.
namespace cpu {
void matmul_grouped(const GroupedMatmulArgs& args);
}  // namespace cpu
namespace cuda {
void matmul_grouped(const GroupedMatmulArgs& args);
void matmul_grouped_units(const GroupedMatmulArgs& args, UnitTiling tiling = UnitTiling::automatic);
}  // namespace cuda
namespace emulated {
void matmul_grouped(const GroupedMatmulArgs& args);
void matmul_grouped_units(const GroupedMatmulArgs& args, UnitTiling tiling = UnitTiling::automatic);
}  // namespace emulated

}  // namespace motley::kernels
