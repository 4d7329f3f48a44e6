// A tile of C in the registers of a block's threads, as the products on matrix units sum it: fragments of 16 x 8 sums
// (kernels/cuda/fragments.h), what they start from, how the sums of a k_tile join them, and how they reach C.
//
// A Tiling says how a block's tile of kRows x kCols outputs is cut: each warp has kM x kN fragments. kTurned: rows of
// fragments are columns of C, as where the weights come as the first operand of an instruction.
#pragma once

#include "kernels/cuda/product.h"
#include "kernels/cuda/unit_tiles.h"

namespace motley::kernels::GPU_NAMESPACE {

struct UnitJob {
  Product product;
  UnitOperand a, b;
};
/// How an operand is read.
UnitOperand unit_operand(const ConstMatrix& m);
UnitOperand unit_operand(const PackedCodes& b);
/// Throws std::logic_error, with the kernel's name, for what no product on matrix units takes.
void check_unit_product(const char* name, const MatmulArgs& args);

template <class Tiling>
struct Sums {
  float at[Tiling::kM][Tiling::kN][4];
};

/// Where a warp's fragments begin in its block's tile, and where that lies in C.
struct UnitPlace {
  int down, across;
  int64_t row, col;
};

/// Calls body(i, j, e, down, across) for every output of a thread: place e of fragment (i, j), in the warp's part.
template <class Tiling, class Body>
GPU_DEVICE void for_each_sum(const Body& body) {
  const int lane = thread() % kWarp;
  GPU_UNROLL
  for (int i = 0; i < Tiling::kM; ++i) {
    GPU_UNROLL
    for (int j = 0; j < Tiling::kN; ++j) {
      GPU_UNROLL
      for (int e = 0; e < 4; ++e) body(i, j, e, 16 * i + lane / 4 + e / 2 * 8, 8 * j + lane % 4 * 2 + e % 2);
    }
  }
}
/// Where a tile of sums in shared memory holds an output.
template <class Tiling>
GPU_DEVICE int sum_at(int down, int across) {
  return Tiling::kTurned ? across * Tiling::kSumStride + down : down * Tiling::kSumStride + across;
}

/// total continued with the sums of a k_tile that ends before column `end`: add_partial of kernels/cuda/product.h, with
/// the scales of a row or a column read once.
template <class Tiling>
GPU_DEVICE void add_partials(Sums<Tiling>& total, const Sums<Tiling>& sums, const UnitJob& job, const UnitPlace& at,
                             int64_t end) {
  const MatmulArgs& args = job.product.args;
  if (args.a_scales == nullptr) {
    for_each_sum<Tiling>([&](int i, int j, int e, int, int) { total.at[i][j][e] += sums.at[i][j][e]; });
    return;
  }
  const int lane = here(thread() % kWarp);
  const int64_t blocks = pieces(job.a.depth, 128), index = (end - 1) / 128;
  const auto of_row = [&](int64_t row) { return row < job.a.rows ? args.a_scales[row * blocks + index] : 0.0f; };
  const auto of_col = [&](int64_t col) {
    return col < job.b.rows ? args.b_scales[col / args.b_scale_rows * blocks + index] : 0.0f;
  };
  float down[Tiling::kM][2];
  GPU_UNROLL
  for (int i = 0; i < 2 * Tiling::kM; ++i) {
    const int place = at.down + 8 * i + lane / 4;
    down[i / 2][i % 2] = Tiling::kTurned ? of_col(at.col + place) : of_row(at.row + place);
  }
  GPU_UNROLL
  for (int j = 0; j < Tiling::kN; ++j) {
    GPU_UNROLL
    for (int e = 0; e < 2; ++e) {
      const int place = at.across + 8 * j + lane % 4 * 2 + e;
      const float across = Tiling::kTurned ? of_row(at.row + place) : of_col(at.col + place);
      GPU_UNROLL
      for (int i = 0; i < 2 * Tiling::kM; ++i) {
        float& sum = total.at[i / 2][j][i % 2 * 2 + e];
        sum = std::fma(sums.at[i / 2][j][i % 2 * 2 + e], down[i / 2][i % 2] * across, sum);
      }
    }
  }
}

/// What C holds before the product.
template <class Tiling>
GPU_DEVICE void start_sums(Sums<Tiling>& sums, const UnitJob& job, const UnitPlace& at) {
  for_each_sum<Tiling>([&](int i, int j, int e, int down, int across) {
    const int64_t row = at.row + (Tiling::kTurned ? at.across + across : at.down + down);
    const int64_t col = at.col + (Tiling::kTurned ? at.down + down : at.across + across);
    const bool inside = row < job.a.rows && col < job.b.rows;
    sums.at[i][j][e] = inside ? initial_sum<float>(job.product.args, row, col) : 0.0f;
  });
}
/// Finishes and stores the block's tile of C, by way of shared memory, so that neighbours are stored together.
template <class Tiling>
GPU_DEVICE void store_sums(const Sums<Tiling>& sums, const UnitJob& job, const UnitPlace& at, float* tile) {
  barrier();
  for_each_sum<Tiling>([&](int i, int j, int e, int down, int across) {
    tile[sum_at<Tiling>(at.down + down, at.across + across)] = sums.at[i][j][e];
  });
  barrier();
  for (int i = thread(); i < Tiling::kRows * Tiling::kCols; i += threads()) {
    const int r = i / Tiling::kCols, c = i % Tiling::kCols;
    if (at.row + r < job.a.rows && at.col + c < job.b.rows)
      finish(job.product, at.row + r, at.col + c, tile[r * Tiling::kSumStride + c]);
  }
}

}  // namespace motley::kernels::GPU_NAMESPACE
