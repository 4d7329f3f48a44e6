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

#include "kernels/cpu/matmul_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace motley::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows at a time: B is read again for each such chunk, and A for each strip of B's panels. So many that A stays in the
// second cache; where tiles rest between passes over the depth, few.
constexpr int64_t kChunkElements = int64_t{1} << 18;
constexpr int64_t kFewestBlocks = 16, kMostBlocks = 128;

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

/// The products of one tile for the next job.depth columns from k0 on, cut where a k_tile ends.
template <bool Columns>
void advance_cut_tile(const MatmulArgs& args, const TilePlace& at, TileJob& job, int64_t panels, int64_t k0,
                      float* total, float* partial) {
  const int64_t depth = args.a.cols, k1 = k0 + job.depth;
  if (k0 == 0) start_tile<kBlockRows, kTileCols>(args, at, total);
  job.to = partial;
  job.to_stride = job.from_stride = kTileCols;
  for (int64_t k = k0; k < k1;) {
    const int64_t end = std::min({k1, depth, (k / args.k_tile + 1) * args.k_tile});
    job.depth = end - k;
    job.from = k % args.k_tile == 0 ? nullptr : partial;
    multiply_tile<Columns>(job, at.rows, panels);
    if (end % args.k_tile == 0 || end == depth) add_partial<kBlockRows, kTileCols>(args, at, k, partial, total);
    job.a += job.depth * (Columns ? kBlockRows : 1);
    job.b += job.depth * job.b_depth;
    k = end;
  }
  if (k1 == depth) store_tile(args, at, total);
}

/// Where C may take the sums, or what is added to them, right from the registers: whole tiles of a plain float C.
bool stores_directly(const MatmulArgs& args) {
  const auto fits = [](DType dtype, int64_t col_stride) { return dtype == DType::f32 && col_stride == 1; };
  return args.k_tile == 0 && args.alpha == 1.0f && fits(args.c.dtype, args.c.col_stride) &&
         args.column_factors == nullptr && args.row_factors == nullptr && args.gate.data == nullptr &&
         (args.residual.data == nullptr || fits(args.residual.dtype, args.residual.col_stride));
}

/// The same without a cut: sums lie in `total` between calls, or in C itself where it is stored directly.
template <bool Columns>
void advance_tile(const MatmulArgs& args, const TilePlace& at, TileJob& job, int64_t panels, int64_t k0, bool direct,
                  float* total) {
  const bool first = k0 == 0, last = k0 + job.depth == args.a.cols;
  direct = direct && at.rows == kBlockRows && at.cols == panels * kPanel;
  float* c = static_cast<float*>(args.c.data) + at.row * args.c.row_stride + at.col;
  const bool rests_in_c = direct && args.residual.data == nullptr;
  if (first && !rests_in_c && args.accumulate) start_tile<kBlockRows, kTileCols>(args, at, total);
  const float* resting = rests_in_c ? c : total;
  job.from = first && !args.accumulate ? nullptr : resting;
  job.from_stride = rests_in_c ? args.c.row_stride : kTileCols;
  const bool to_c = rests_in_c || (direct && last);
  job.to = to_c ? c : total;
  job.to_stride = to_c ? args.c.row_stride : kTileCols;
  const bool adds = direct && last && args.residual.data != nullptr;
  job.residual =
      adds ? static_cast<const float*>(args.residual.data) + at.row * args.residual.row_stride + at.col : nullptr;
  job.residual_stride = args.residual.row_stride;
  multiply_tile<Columns>(job, at.rows, panels);
  if (last && !direct) store_tile(args, at, total);
}

/// Products of one pass over the depth.
int64_t depth_step(const MatmulPiece& piece) { return piece.depth_stride == kPanel ? kBlockDepth : kStridedDepth; }

/// One chunk of rows, over all panels of the piece.
template <bool Columns>
void multiply_chunk(const MatmulPiece& piece, int64_t row_begin, int64_t row_end) {
  const MatmulArgs& args = *piece.args;
  const int64_t depth = args.a.cols, panels = piece.panel_end - piece.panel_begin;
  const int64_t blocks = (row_end - row_begin + kBlockRows - 1) / kBlockRows;
  // Whole blocks of float rows are read where they are.
  const int64_t in_place = reads_in_place(args.a) ? (row_end - row_begin) / kBlockRows : 0;
  const bool direct = stores_directly(args);
  const int64_t step = depth_step(piece);
  const int64_t tiles = depth <= step ? 1 : blocks * ((panels + kTilePanels - 1) / kTilePanels);
  float* packed = scratch<struct PackedBlocks, float>(blocks * kBlockSize);
  float* totals = scratch<struct TileTotals, float>(tiles * kTileSize);
  float* partials = args.k_tile == 0 ? totals : scratch<struct TilePartials, float>(tiles * kTileSize);
  TileJob job;  // one for all tiles: copies of it would stall on the fields just written
  job.b_panel = piece.panel_stride;
  job.b_depth = piece.depth_stride;
  for (int64_t k0 = 0; k0 < depth; k0 += step) {
    const int64_t k1 = std::min(depth, k0 + step);
    pack_blocks(args.a, row_begin + in_place * kBlockRows, row_end, k0, k1 - k0, packed + in_place * kBlockSize);
    for (int64_t p = 0, group = 0; p < panels; p += kTilePanels, ++group) {
      const int64_t count = std::min(kTilePanels, panels - p);
      for (int64_t i = 0; i < blocks; ++i) {
        const int64_t row = row_begin + i * kBlockRows, col = (piece.panel_begin + p) * kPanel;
        const TilePlace at{row, std::min(kBlockRows, row_end - row), col, std::min(count * kPanel, piece.n - col)};
        const bool here = i < in_place;
        job.a = here ? static_cast<const float*>(args.a.data) + row * args.a.row_stride + k0 : packed + i * kBlockSize;
        job.a_row = here ? args.a.row_stride : kRowStride;
        job.b = piece.panels + p * piece.panel_stride + k0 * piece.depth_stride;
        job.depth = k1 - k0;
        const int64_t tile = tiles == 1 ? 0 : (group * blocks + i) * kTileSize;
        if (args.k_tile == 0)
          advance_tile<Columns>(args, at, job, count, k0, direct, totals + tile);
        else
          advance_cut_tile<Columns>(args, at, job, count, k0, totals + tile, partials + tile);
      }
    }
  }
}

/// Rows of a chunk: chunks of one piece are about equal.
int64_t chunk_rows(const MatmulPiece& piece) {
  const int64_t depth = piece.args->a.cols;
  const int64_t blocks = (piece.row_end - piece.row_begin + kBlockRows - 1) / kBlockRows;
  int64_t most = kFewestBlocks;
  if (depth <= depth_step(piece)) most = std::clamp(kChunkElements / (depth * kBlockRows), kFewestBlocks, kMostBlocks);
  const int64_t chunks = (blocks + most - 1) / most;
  return (blocks + chunks - 1) / chunks * kBlockRows;
}

void run_piece(const MatmulPiece& piece) {
  const int64_t rows = chunk_rows(piece);
  for (int64_t row = piece.row_begin; row < piece.row_end; row += rows) {
    const int64_t end = std::min(piece.row_end, row + rows);
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
