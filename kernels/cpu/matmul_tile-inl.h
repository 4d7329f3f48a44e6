// The inner loop of the float product: a tile of C in registers, once per instruction set. Included inside no namespace
// by the file that Highway compiles for each target, after highway.h.

#if defined(MOTLEY_MATMUL_TILE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MOTLEY_MATMUL_TILE_INL_H
#undef MOTLEY_MATMUL_TILE_INL_H
#else
#define MOTLEY_MATMUL_TILE_INL_H
#endif

#include "kernels/cpu/matmul_inner.h"
#include "kernels/cpu/matmul_pack.h"

HWY_BEFORE_NAMESPACE();
namespace motley::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kTileCols = kTilePanels * kPanel;
constexpr int64_t kTileSize = kBlockRows * kTileCols;

using Tag = hn::CappedTag<float, kPanel>;
using Vector = hn::Vec<Tag>;
constexpr int kVectorsPerPanel = static_cast<int>(kPanel / hn::MaxLanes(Tag()));
// With 16 registers a tile is 4 rows by one panel, with 32 it is 8 rows by three.
constexpr bool kWide = kVectorsPerPanel == 1;

/// What a tile multiplies, where its sums come from and where they go. Strides in elements.
struct TileJob {
  const float* a = nullptr;  // row r, product k: a[k * kBlockRows + r] of columns, else a[r * a_row + k]
  int64_t a_row = 0;
  const float* b = nullptr;  // panel p, product k: b[p * b_panel + k * b_depth] and the next kPanel - 1
  int64_t b_panel = 0, b_depth = 0, depth = 0;
  const float* from = nullptr;  // the sums so far; null: zero
  int64_t from_stride = 0;
  float* to = nullptr;
  int64_t to_stride = 0;
  const float* residual = nullptr;  // to = residual + sum; null: to = sum
  int64_t residual_stride = 0;
};

/// Rows by Panels panels of sums.
template <int Rows, int Panels, bool Columns>
void multiply(const TileJob& job) {
  constexpr int kVectors = Panels * kVectorsPerPanel;
  constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(Tag()));
  const Tag tag;
  Vector sums[Rows][kVectors];
  const float* from = job.from;
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v)
      sums[r][v] = from == nullptr ? hn::Zero(tag) : hn::LoadU(tag, from + r * job.from_stride + v * kLanes);
  }
  const float *HWY_RESTRICT a = job.a, *HWY_RESTRICT b = job.b;
  const int64_t row_step = Columns ? 1 : job.a_row, a_depth = Columns ? kBlockRows : 1;
  const int64_t b_panel = job.b_panel, b_depth = job.b_depth;
  // Stores that miss the first cache wait for one another: a row's lines are asked for in each of Rows parts of the
  // depth, few enough at a time to leave room for what the loop reads.
  const float* place = job.to;
  const int64_t part = job.depth / Rows;
  for (int64_t done = 0, end = job.depth - part * (Rows - 1); done < job.depth; done = end, end += part) {
#pragma GCC unroll 8
    for (int p = 0; p < Panels; ++p) __builtin_prefetch(place + p * kPanel, 1);
    place += job.to_stride;
    for (int64_t k = end - done; k > 0; --k) {
      Vector columns[kVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v)
        columns[v] = hn::LoadU(tag, b + (v / kVectorsPerPanel) * b_panel + (v % kVectorsPerPanel) * kLanes);
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) {
        const Vector value = hn::Set(tag, a[r * row_step]);
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(value, columns[v], sums[r][v]);
      }
      a += a_depth;
      b += b_depth;
    }
  }
  float* to = job.to;
  const float* residual = job.residual;
  if (residual != nullptr) {
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v)
        sums[r][v] = hn::Add(hn::LoadU(tag, residual + r * job.residual_stride + v * kLanes), sums[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[r][v], tag, to + r * job.to_stride + v * kLanes);
  }
}

/// `rows` (at most kBlockRows) by `panels` (at most kTilePanels) panels. Rows up to the next size of a kernel are
/// computed too: `a`, `from` and `to` must have them.
template <bool Columns>
void multiply_tile(const TileJob& job, int64_t rows, int64_t panels) {
  if constexpr (kWide) {
    const bool few = rows <= 4;
    switch (panels * 2 + few) {
      case 7:
        return multiply<4, 3, Columns>(job);
      case 6:
        return multiply<8, 3, Columns>(job);
      case 5:
        return multiply<4, 2, Columns>(job);
      case 4:
        return multiply<8, 2, Columns>(job);
      case 3:
        return multiply<4, 1, Columns>(job);
      default:
        return multiply<8, 1, Columns>(job);
    }
  } else {
    TileJob part = job;
    for (int64_t p = 0; p < panels; ++p) {
      for (int64_t r = 0; r < rows; r += 4) {
        part.a = job.a + r * (Columns ? 1 : job.a_row);
        part.b = job.b + p * job.b_panel;
        if (job.from != nullptr) part.from = job.from + r * job.from_stride + p * kPanel;
        if (job.residual != nullptr) part.residual = job.residual + r * job.residual_stride + p * kPanel;
        part.to = job.to + r * job.to_stride + p * kPanel;
        multiply<4, 1, Columns>(part);
      }
    }
  }
}

}  // namespace motley::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
