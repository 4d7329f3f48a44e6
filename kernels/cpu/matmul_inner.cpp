#include "kernels/cpu/matmul_inner.h"

#include <algorithm>
#include <bit>

#include "kernels/cpu/elements.h"
#include "kernels/cpu/highway_baseline.h"
#include "kernels/cpu/matmul_finish.h"
#include "kernels/cpu/matmul_pack.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/tile_sums.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul_inner.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace motley::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kGroup = 3;  // panels in one tile of C
constexpr int64_t kTileCols = kGroup * kPanel;
constexpr int64_t kTileSize = kBlockRows * kTileCols;
constexpr int64_t kChunkBlocks = 16;  // blocks of rows at a time: B is read again for each such chunk

using Tag = hn::CappedTag<float, kPanel>;
using Vector = hn::Vec<Tag>;
constexpr int kVectorsPerPanel = static_cast<int>(kPanel / hn::MaxLanes(Tag()));
// With 16 registers a tile is 4 rows by one panel, with 32 it is 8 rows by three.
constexpr bool kWide = kVectorsPerPanel == 1;

/// tile[Rows][kTileCols] = the chains of `depth` products, from zero or from what is in the tile.
template <int Rows, int Panels, bool Columns>
void multiply(const float* HWY_RESTRICT a, int64_t row_stride, const float* HWY_RESTRICT b, int64_t panel_stride,
              int64_t depth, float* HWY_RESTRICT tile, bool from_zero) {
  constexpr int kVectors = Panels * kVectorsPerPanel;
  constexpr int64_t kDepthStep = Columns ? kBlockRows : 1;
  const int64_t row_step = Columns ? 1 : row_stride;
  const Tag tag;
  constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(Tag()));
  Vector sums[Rows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v)
      sums[r][v] = from_zero ? hn::Zero(tag) : hn::LoadU(tag, tile + r * kTileCols + v * kLanes);
  }
  for (int64_t k = 0; k < depth; ++k) {
    Vector columns[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v)
      columns[v] = hn::LoadU(tag, b + (v / kVectorsPerPanel) * panel_stride + (v % kVectorsPerPanel) * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      const Vector value = hn::Set(tag, a[r * row_step]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(value, columns[v], sums[r][v]);
    }
    a += kDepthStep;
    b += kPanel;
  }
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[r][v], tag, tile + r * kTileCols + v * kLanes);
  }
}

template <bool Columns>
void multiply_tile(const float* a, int64_t row_stride, int64_t rows, const float* b, int64_t panels,
                   int64_t panel_stride, int64_t depth, float* tile, bool from_zero) {
  if constexpr (kWide) {
    const bool few = rows <= 4;
    switch (panels * 2 + few) {
      case 7:
        return multiply<4, 3, Columns>(a, row_stride, b, panel_stride, depth, tile, from_zero);
      case 6:
        return multiply<8, 3, Columns>(a, row_stride, b, panel_stride, depth, tile, from_zero);
      case 5:
        return multiply<4, 2, Columns>(a, row_stride, b, panel_stride, depth, tile, from_zero);
      case 4:
        return multiply<8, 2, Columns>(a, row_stride, b, panel_stride, depth, tile, from_zero);
      case 3:
        return multiply<4, 1, Columns>(a, row_stride, b, panel_stride, depth, tile, from_zero);
      default:
        return multiply<8, 1, Columns>(a, row_stride, b, panel_stride, depth, tile, from_zero);
    }
  } else {
    for (int64_t p = 0; p < panels; ++p)
      for (int64_t r = 0; r < rows; r += 4)
        multiply<4, 1, Columns>(a + r * (Columns ? 1 : row_stride), row_stride, b + p * panel_stride, 0, depth,
                                tile + r * kTileCols + p * kPanel, from_zero);
  }
}

/// Sixteen sums, or the lanes of one vector, rounded to C's type.
inline void store_vector(Vector sum, float* out) { hn::StoreU(sum, Tag(), out); }
inline void store_vector(Vector sum, bf16* out) {
  const hn::RebindToUnsigned<Tag> bits_tag;
  const hn::Rebind<uint16_t, Tag> half_tag;
  const auto bits = hn::BitCast(bits_tag, sum);
  const auto high = hn::ShiftRight<16>(bits);
  const auto odd = hn::And(high, hn::Set(bits_tag, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(bits_tag, 0x7fffu)), odd));
  const auto is_nan = hn::RebindMask(bits_tag, hn::IsNaN(sum));
  const auto code = hn::IfThenElse(is_nan, hn::Or(high, hn::Set(bits_tag, 0x40u)), rounded);
  hn::StoreU(hn::DemoteTo(half_tag, hn::BitCast(hn::RebindToSigned<Tag>(), code)), half_tag,
             reinterpret_cast<uint16_t*>(out));
}
inline void store_vector(Vector sum, fp16* out) {
  alignas(64) float values[kPanel];
  hn::StoreU(sum, Tag(), values);
  store(out, values, static_cast<int64_t>(hn::MaxLanes(Tag())));
}

template <class T>
void store_row(const float* sums, float alpha, int64_t count, T* out, int64_t stride) {
  constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(Tag()));
  const auto factor = hn::Set(Tag(), alpha);
  int64_t c = 0;
  if (stride == 1)
    for (; c + kLanes <= count; c += kLanes) store_vector(hn::Mul(hn::LoadU(Tag(), sums + c), factor), out + c);
  for (; c < count; ++c) out[c * stride] = store<T>(sums[c] * alpha);
}

template <class T>
void store_tile_as(const MatmulArgs& args, const TilePlace& at, const float* tile) {
  for (int64_t r = 0; r < at.rows; ++r) {
    T* out = static_cast<T*>(args.c.data) + (at.row + r) * args.c.row_stride + at.col * args.c.col_stride;
    store_row(tile + r * kTileCols, args.alpha, at.cols, out, args.c.col_stride);
  }
}
void store_tile(const MatmulArgs& args, const TilePlace& at, float* tile) {
  if (!finish_is_plain(args)) {
    for (int64_t r = 0; r < at.rows; ++r) finish_row(args, at.row + r, at.col, at.cols, tile + r * kTileCols);
    return;
  }
  if (args.c.dtype == DType::f32)
    store_tile_as<float>(args, at, tile);
  else if (args.c.dtype == DType::bf16)
    store_tile_as<bf16>(args, at, tile);
  else
    store_tile_as<fp16>(args, at, tile);
}

/// The products of columns [k0, k1) of one tile, cut where a k_tile ends.
template <bool Columns>
void advance_tile(const MatmulArgs& args, const TilePlace& at, const float* a, int64_t row_stride, const float* b,
                  int64_t panels, int64_t k0, int64_t k1, float* total, float* partial) {
  const int64_t depth = args.a.cols, stride = depth * kPanel;
  if (args.k_tile == 0) {
    const bool from_zero = k0 == 0 && !args.accumulate;
    if (k0 == 0 && !from_zero) start_tile<kBlockRows, kTileCols>(args, at, total);
    return multiply_tile<Columns>(a, row_stride, at.rows, b + k0 * kPanel, panels, stride, k1 - k0, total, from_zero);
  }
  if (k0 == 0) start_tile<kBlockRows, kTileCols>(args, at, total);
  for (int64_t k = k0; k < k1;) {
    const int64_t end = std::min({k1, depth, (k / args.k_tile + 1) * args.k_tile});
    multiply_tile<Columns>(a + (k - k0) * (Columns ? kBlockRows : 1), row_stride, at.rows, b + k * kPanel, panels,
                           stride, end - k, partial, k % args.k_tile == 0);
    if (end % args.k_tile == 0 || end == depth) add_partial<kBlockRows, kTileCols>(args, at, k, partial, total);
    k = end;
  }
}

/// kChunkBlocks blocks of rows at most, over all panels of the piece.
template <bool Columns>
void multiply_chunk(const MatmulPiece& piece, int64_t row_begin, int64_t row_end) {
  const MatmulArgs& args = *piece.args;
  const int64_t depth = args.a.cols, panels = piece.panel_end - piece.panel_begin;
  const int64_t blocks = (row_end - row_begin + kBlockRows - 1) / kBlockRows;
  const bool one_pass = depth <= kBlockDepth;
  const int64_t tiles = one_pass ? 1 : blocks * ((panels + kGroup - 1) / kGroup);
  float* packed = scratch<struct PackedBlocks, float>(blocks * kBlockSize);
  float* totals = scratch<struct TileTotals, float>(tiles * kTileSize);
  float* partials = args.k_tile == 0 ? totals : scratch<struct TilePartials, float>(tiles * kTileSize);
  for (int64_t k0 = 0; k0 < depth; k0 += kBlockDepth) {
    const int64_t k1 = std::min(depth, k0 + kBlockDepth);
    // Whole blocks of float rows are read where they are.
    const int64_t in_place = reads_in_place(args.a) ? (row_end - row_begin) / kBlockRows : 0;
    for (int64_t i = in_place; i < blocks; ++i)
      pack_block(args.a, row_begin + i * kBlockRows, k0, k1 - k0, packed + i * kBlockSize);
    for (int64_t p = 0, group = 0; p < panels; p += kGroup, ++group) {
      const int64_t count = std::min<int64_t>(kGroup, panels - p);
      for (int64_t i = 0; i < blocks; ++i) {
        const int64_t row = row_begin + i * kBlockRows, col = (piece.panel_begin + p) * kPanel;
        const TilePlace at{row, std::min(kBlockRows, row_end - row), col,
                           std::min(std::min<int64_t>(kGroup, panels - p) * kPanel, piece.n - col)};
        const int64_t tile = one_pass ? 0 : (group * blocks + i) * kTileSize;
        const bool here = i < in_place;
        const float* a =
            here ? static_cast<const float*>(args.a.data) + row * args.a.row_stride + k0 : packed + i * kBlockSize;
        advance_tile<Columns>(args, at, a, here ? args.a.row_stride : kRowStride, piece.panels + p * depth * kPanel,
                              count, k0, k1, totals + tile, partials + tile);
        if (k1 == depth) store_tile(args, at, totals + tile);
      }
    }
  }
}

void run_piece(const MatmulPiece& piece) {
  for (int64_t row = piece.row_begin; row < piece.row_end; row += kChunkBlocks * kBlockRows) {
    const int64_t end = std::min(piece.row_end, row + kChunkBlocks * kBlockRows);
    if (packs_columns(piece.args->a))
      multiply_chunk<true>(piece, row, end);
    else
      multiply_chunk<false>(piece, row, end);
  }
}

}  // namespace motley::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
static_assert(!HWY_ARCH_X86 || HWY_STATIC_TARGET <= HWY_AVX2, "every instruction set must fuse multiply-adds");

namespace motley::kernels::cpu {

HWY_EXPORT(run_piece);
void matmul_piece(const MatmulPiece& piece) { HWY_DYNAMIC_DISPATCH(run_piece)(piece); }

namespace {
void allow(int64_t targets) {
  hwy::SetSupportedTargetsForTest(targets);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}
}  // namespace

int instruction_sets() {
  use_best_instruction_set();
  return std::popcount(static_cast<uint64_t>(hwy::SupportedTargets() & HWY_TARGETS));
}
void use_instruction_set(int index) {
  use_best_instruction_set();
  int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  for (; index > 0; --index) targets &= targets - 1;
  allow(targets & -targets);
}
void use_best_instruction_set() { allow(0); }

}  // namespace motley::kernels::cpu
#endif
