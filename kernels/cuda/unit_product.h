// A block's tile of a product on matrix units (mma.sync), for one product (matmul_units.cu) and for groups of them
// (matmul_grouped.cu). The order of reduction is fixed: an output is one chain of mma steps of 16 products with k
// ascending, cut where a k_tile ends. Neither the tiling nor the place of a row in its batch enters: matrix units treat
// all their rows and columns alike.
#pragma once

#include "kernels/cuda/unit_sums.h"

namespace motley::kernels::GPU_NAMESPACE {

inline constexpr int kUnitStep = 16;  // products of one instruction

template <class T>
inline constexpr Operand kOperandOf = std::is_same_v<T, bf16> ? Operand::bf16 : Operand::fp16;

/// A block's tile of C, and its cut into warps. Operand tiles are kDepth deep, kStages of them under way or in use.
template <int Rows, int Cols, int Depth, int Stages, int WarpsDown, int WarpsAcross>
struct UnitTiles {
  static constexpr bool kTurned = false;
  static constexpr int kRows = Rows, kCols = Cols, kDepth = Depth, kStages = Stages;
  static constexpr int kThreads = kWarp * WarpsDown * WarpsAcross, kAcross = WarpsAcross;
  static constexpr int kWarpRows = Rows / WarpsDown, kWarpCols = Cols / WarpsAcross;
  static constexpr int kM = kWarpRows / 16, kN = kWarpCols / 8;  // fragments of a warp
  static constexpr int kStageBytes = UnitTile<Rows, Depth>::kBytes + UnitTile<Cols, Depth>::kBytes;
  static constexpr int64_t kShared = int64_t{kStageBytes} * Stages;
  static constexpr int kSumStride = Cols + 8;  // of a tile of sums, so that a warp's stores spread over banks
  static_assert(kM * 16 * WarpsDown == Rows && kN * 8 * WarpsAcross == Cols && kN % 2 == 0 && kShared <= kSharedBytes &&
                Rows * kSumStride * 4 <= kShared);
};
// Few rows read the weights once, with many small blocks and much under way; the others are ever larger.
using FewRows = UnitTiles<16, 32, 128, 4, 1, 2>;
using MediumTiles = UnitTiles<64, 64, 64, 3, 2, 2>;
using WideTiles = UnitTiles<128, 128, 64, 3, 2, 4>;

/// What `automatic` is for that many rows, of the tilings of mma.sync.
inline UnitTiling unit_tiling(int64_t rows) {
  return rows <= FewRows::kRows       ? UnitTiling::few_rows
         : rows <= MediumTiles::kRows ? UnitTiling::medium
                                      : UnitTiling::wide;
}

template <Operand O, Format F, Scaling S, class Tile, int N>
GPU_DEVICE void decode_all(uint32_t (&b)[N][2], const unsigned char* tile, int col, int k) {
  GPU_UNROLL
  for (int j = 0; j < N; ++j) decode_b<O, F, S, Tile>(b[j], tile, col + 8 * j, k);
}

/// The products of kUnitStep columns from k on, of a stage's tiles. row, col: of the warp in the block's tile.
template <class T, class Tiling>
GPU_DEVICE void multiply_step(Sums<Tiling>& sums, const UnitJob& job, const unsigned char* a_tile,
                              const unsigned char* b_tile, int row, int col, int k) {
  constexpr Operand kOperand = kOperandOf<T>;
  using ATile = UnitTile<Tiling::kRows, Tiling::kDepth>;
  using BTile = UnitTile<Tiling::kCols, Tiling::kDepth>;
  uint32_t b[Tiling::kN][2];
  if (job.b.source == Source::codes) {
    visit_code_form(job.b.packed, [&]<Format F, Scaling S>() { decode_all<kOperand, F, S, BTile>(b, b_tile, col, k); });
  } else {
    const bool flat = job.b.source == Source::flat || job.b.source == Source::panels;
    GPU_UNROLL
    for (int j = 0; j < Tiling::kN; j += 2) {
      uint32_t both[4];
      load_b<BTile>(both, b_tile, flat, col + 8 * j, k);
      GPU_UNROLL
      for (int i = 0; i < 4; ++i) b[j + i / 2][i % 2] = both[i];
    }
  }
  GPU_UNROLL
  for (int i = 0; i < Tiling::kM; ++i) {
    uint32_t a[4];
    load_a<ATile>(a, a_tile, job.a.source == Source::flat, row + 16 * i, k);
    GPU_UNROLL
    for (int j = 0; j < Tiling::kN; ++j) multiply_fragments<kOperand>(sums.at[i][j], a, b[j]);
  }
}

/// The tile of C from (row, col) on, with Tiling::kShared bytes of `memory`. Cut: k_tile is not 0.
template <class T, class Tiling, bool Cut>
GPU_DEVICE void multiply_unit_tile(const UnitJob& job, int64_t row, int64_t col, unsigned char* memory) {
  constexpr int kDepth = Tiling::kDepth, kStages = Tiling::kStages;
  constexpr int kATileBytes = UnitTile<Tiling::kRows, kDepth>::kBytes;
  const MatmulArgs& args = job.product.args;
  const int64_t depth = job.a.depth, tiles = pieces(depth, kDepth);
  const int warp = thread() / kWarp;
  const UnitPlace at{warp / Tiling::kAcross * Tiling::kWarpRows, warp % Tiling::kAcross * Tiling::kWarpCols, row, col};
  const bool idle = row + at.down >= job.a.rows || col + at.across >= job.b.rows;
  float* const sum_tile = reinterpret_cast<float*>(memory);
  Sums<Tiling> sums{}, total{};
  if (args.accumulate) start_sums(Cut ? total : sums, job, at);
  const auto stage_of = [&](int64_t tile) { return memory + tile % kStages * Tiling::kStageBytes; };
  const auto load = [&](int64_t tile) {
    if (tile < tiles) {
      UnitLoader<T, Tiling::kRows, kDepth>::load(stage_of(tile), job.a, row, tile * kDepth);
      UnitLoader<T, Tiling::kCols, kDepth>::load(stage_of(tile) + kATileBytes, job.b, col, tile * kDepth);
    }
    commit_copies();
  };
  for (int64_t tile = 0; tile < kStages - 1; ++tile) load(tile);
  for (int64_t tile = 0; tile < tiles; ++tile) {
    wait_for_copies<kStages - 2>();
    barrier();  // the copies of all threads are there, and the stage that is loaded next was read by all
    load(tile + kStages - 1);
    if (idle) continue;
    const unsigned char* stage = stage_of(tile);
    for (int k = 0; k < kDepth && tile * kDepth + k < depth; k += kUnitStep) {
      multiply_step<T, Tiling>(sums, job, stage, stage + kATileBytes, at.down, at.across, k);
      if constexpr (Cut) {
        const int64_t end = tile * kDepth + k + kUnitStep;
        if (end % args.k_tile != 0 && end < depth) continue;
        add_partials(total, sums, job, at, end < depth ? end : depth);
        sums = {};
      }
    }
  }
  store_sums(Cut ? total : sums, job, at, sum_tile);
}

}  // namespace motley::kernels::GPU_NAMESPACE
