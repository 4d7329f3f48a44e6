// Products on the warpgroups of compute capability 9.0, for many rows. The weights are the first operand, in registers,
// so that codes of every format are decoded there as for mma.sync; the rows of A are the second, in shared memory as
// UnitTile lays them out, which is the 128-byte swizzle that wgmma reads. The order of reduction is that of
// kernels/cuda/unit_product.h: k ascending in steps of 16, where an instruction begins and ends.
#include <stdexcept>
#include <string>

#include "kernels/cuda/unit_product.h"
#include "kernels/cuda/warpgroup.h"
#include "kernels/cuda/warpgroup_product.h"
#include "kernels/device_memory.h"

namespace motley::kernels::GPU_NAMESPACE {
namespace {

using Tiles = WarpgroupTiles;

/// The fragments of a warp's 16 rows of weights, from `row` on, for every step of a stage.
template <class T, bool Coded>
GPU_DEVICE void load_weights(uint32_t (&a)[Tiles::kSteps][4], const UnitOperand& weights, const unsigned char* tile,
                             int row) {
  using Tile = UnitTile<Tiles::kCols, Tiles::kDepth>;
  if constexpr (Coded) {
    visit_code_form(weights.packed, [&]<Format F, Scaling S>() {
      GPU_UNROLL
      for (int step = 0; step < Tiles::kSteps; ++step) {
        uint32_t upper[2], lower[2];
        decode_b<kOperandOf<T>, F, S, Tile>(upper, tile, row, step * kUnitStep);
        decode_b<kOperandOf<T>, F, S, Tile>(lower, tile, row + 8, step * kUnitStep);
        GPU_UNROLL
        for (int i = 0; i < 2; ++i) {
          a[step][2 * i] = upper[i];
          a[step][2 * i + 1] = lower[i];
        }
      }
    });
  } else {
    const bool flat = weights.source == Source::flat || weights.source == Source::panels;
    GPU_UNROLL
    for (int step = 0; step < Tiles::kSteps; ++step) load_a<Tile>(a[step], tile, flat, row, step * kUnitStep);
  }
}

/// Coded: the weights are codes. Cut: k_tile is not 0.
template <class T, bool Coded, bool Cut>
GPU_DEVICE void multiply_warpgroup_tile(const UnitJob& job, int64_t row, int64_t col, unsigned char* memory) {
  constexpr int kDepth = Tiles::kDepth, kStages = Tiles::kStages;
  const MatmulArgs& args = job.product.args;
  const int64_t depth = job.a.depth, tiles = pieces(depth, kDepth);
  const UnitPlace at{thread() / kWarp * 16, 0, row, col};
  float* const sum_tile = reinterpret_cast<float*>(memory);
  Sums<Tiles> sums{}, total{};
  if (args.accumulate) start_sums(Cut ? total : sums, job, at);
  const auto stage_of = [&](int64_t tile) { return memory + tile % kStages * Tiles::kStageBytes; };
  const auto load = [&](int64_t tile) {
    if (tile < tiles) {
      UnitLoader<T, Tiles::kCols, kDepth>::load(stage_of(tile), job.b, here(col), tile * kDepth);
      UnitLoader<T, Tiles::kRows, kDepth>::load(stage_of(tile) + Tiles::kWeightBytes, job.a, here(row), tile * kDepth);
    }
    commit_copies();
  };
  for (int64_t tile = 0; tile < kStages - 1; ++tile) load(tile);
  for (int64_t tile = 0; tile < tiles; ++tile) {
    wait_for_copies<kStages - 2>();
    publish_to_warpgroups();
    barrier();  // the copies of all threads are there, and the stage that is loaded next was read by all
    load(tile + kStages - 1);
    uint32_t weights[Tiles::kSteps][4];
    load_weights<T, Coded>(weights, job.b, stage_of(tile), here(at.down));
    const uint64_t rows = swizzled_descriptor(shared_address(stage_of(tile) + Tiles::kWeightBytes));
    begin_warpgroup_products(sums.at[0], weights);
    // Beyond the depth both operands are zeros, and a step of zeros leaves a sum as it is.
    GPU_UNROLL
    for (int step = 0; step < Tiles::kSteps; ++step)
      multiply_warpgroup<kOperandOf<T>>(sums.at[0], weights[step], advanced(rows, step * kUnitStep));
    finish_warpgroup_products(sums.at[0], weights);
    if constexpr (Cut) {
      const int64_t end = (tile + 1) * kDepth;
      if (end % args.k_tile != 0 && end < depth) continue;
      add_partials(total, sums, job, at, end < depth ? end : depth);
      sums = {};
    }
  }
  store_sums(Cut ? total : sums, job, at, sum_tile);
}

/// Two blocks on a multiprocessor where registers suffice.
template <class T, bool Coded, bool Cut>
GPU_BOUNDED_KERNEL(Tiles::kThreads, Coded || Cut ? 1 : 2)
void warpgroup_product_kernel(UnitJob job) {
  GPU_DYNAMIC_SHARED(memory);
  if constexpr (kHasWarpgroups) {
    const int64_t across = pieces(job.b.rows, Tiles::kCols);
    multiply_warpgroup_tile<T, Coded, Cut>(job, block() / across * Tiles::kRows, block() % across * Tiles::kCols,
                                           swizzle_aligned(memory));
  } else {
    refuse_warpgroups();
  }
}

template <class T, bool Coded>
void launch_warpgroups(const UnitJob& job) {
  const int64_t blocks = pieces(job.a.rows, Tiles::kRows) * pieces(job.b.rows, Tiles::kCols);
  const Launch shape{"matmul_units on warpgroups", blocks, Tiles::kThreads, Tiles::kShared};
  if (job.product.args.k_tile == 0)
    launch(shape, warpgroup_product_kernel<T, Coded, false>, job);
  else
    launch(shape, warpgroup_product_kernel<T, Coded, true>, job);
}

template <class T>
void launch_warpgroups(const UnitJob& job) {
  if (job.b.source == Source::codes)
    launch_warpgroups<T, true>(job);
  else
    launch_warpgroups<T, false>(job);
}

}  // namespace

void warpgroup_product(const UnitJob& job) {
  if (!fits_warpgroups(job.product.args))
    throw std::logic_error("matmul_units: on warpgroups k_tile is a multiple of 64");
  if (compute_capability() != 90)
    throw std::runtime_error("matmul_units: warpgroups are of compute capability 9.0; this device has " +
                             std::to_string(compute_capability() / 10) + "." +
                             std::to_string(compute_capability() % 10));
  UnitJob by_rows = job;  // wgmma reads rows of 64 columns: others are copied so, element by element
  if (by_rows.a.source == Source::flat) by_rows.a.source = Source::elements;
  if (job.product.args.a.dtype == DType::bf16)
    launch_warpgroups<bf16>(by_rows);
  else
    launch_warpgroups<fp16>(by_rows);
}

}  // namespace motley::kernels::GPU_NAMESPACE
