// The product on warpgroups as the other products of this folder ask for it.
#pragma once

#include "kernels/cuda/unit_sums.h"
#include "kernels/cuda/warpgroup.h"

namespace motley::kernels::GPU_NAMESPACE {

/// A block: two warpgroups of 64 columns of C (rows of weights) each, by 128 rows.
struct WarpgroupTiles {
  static constexpr bool kTurned = true;
  static constexpr int kRows = 128, kCols = 2 * kWarpgroupRows, kDepth = 64, kStages = 3;
  static constexpr int kThreads = 2 * 4 * kWarp;
  static constexpr int kM = 1, kN = kRows / 8;  // fragments of a warp
  static constexpr int kWeightBytes = UnitTile<kCols, kDepth>::kBytes;
  static constexpr int kStageBytes = kWeightBytes + UnitTile<kRows, kDepth>::kBytes;
  static constexpr int64_t kShared = int64_t{kStageBytes} * kStages + kSwizzledRows;
  static constexpr int kSumStride = kCols + 4;
  static constexpr int kSteps = kDepth / kWarpgroupDepth;
  static_assert(kWeightBytes % kSwizzledRows == 0 && kStageBytes % kSwizzledRows == 0 && kShared <= kSharedBytes &&
                kRows * kSumStride * 4 <= kStageBytes * kStages && UnitTile<kRows, kDepth>::kDeepChunks == 8);
};
/// Its tiles of K are 64 deep, and a k_tile ends where one of them does.
inline bool fits_warpgroups(const MatmulArgs& args) { return args.k_tile % 64 == 0; }

/// A product that fits matrix units. Throws std::logic_error where fits_warpgroups says no, std::runtime_error on a
/// device without them.
void warpgroup_product(const UnitJob& job);

}  // namespace motley::kernels::GPU_NAMESPACE
