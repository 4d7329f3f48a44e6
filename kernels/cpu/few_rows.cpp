#include "kernels/cpu/few_rows.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "kernels/cpu/elements.h"
#include "kernels/cpu/highway_baseline.h"
#include "kernels/cpu/matmul_finish.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/tile_sums.h"
#include "kernels/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/few_rows.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/packed_panel-inl.h"

#ifndef MOTLEY_FEW_ROWS_ONCE
#define MOTLEY_FEW_ROWS_ONCE
namespace motley::kernels::cpu {

constexpr int64_t kAhead = 4096;     // bytes between what is decoded and what is prefetched, over all streams
constexpr int64_t kRowBlock = 16;    // rows in one pass over the weights
constexpr int64_t kGroupPanels = 4;  // panels whose chains run side by side, enough to hide the latency of an addition

/// The inputs as float, rows r .. r + 16 of K columns interleaved as [K][width], width 1, 2 or a multiple of 4, zeros
/// beyond the last row. Block i starts at a + 16 i K.
struct FewRows {
  const MatmulArgs* args;
  const float* a;
  bool scaled;  // the inputs carry the codec's input factor
};
constexpr int64_t interleaved_width(int64_t rows) { return rows > 2 ? (rows + 3) / 4 * 4 : rows; }

}  // namespace motley::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace motley::kernels::cpu::HWY_NAMESPACE {

constexpr bool kManyRegisters = kPanelVectors == 1;

/// A tile of C: some rows of a block by the columns of one to kGroupPanels panels.
struct PanelPlace {
  int64_t row, rows;  // rows of C
  int64_t panel, panels;
};

/// sums[Rows][Panels * 16] continue, or start from zero, with the products of k in [k0, k1). `a` is at k0. A panel that
/// does not exist is another one again.
template <class Codec, int Rows, int Panels>
struct Multiply {
  using Sums = PanelVector[Rows][Panels][kPanelVectors];
  const uint8_t* codes[Panels];
  const uint8_t* block_codes[Panels];

  template <int kCount>
  static HWY_INLINE void step(typename Codec::Step* steps, const float* a, int64_t a_step, int64_t first, int64_t count,
                              Sums& sums) {
#pragma GCC unroll 8
    for (int j = 0; j < Codec::kStep; ++j) {
      if (kCount == 0 && j >= first + count) return;
      const bool counts = kCount != 0 || j >= first;
#pragma GCC unroll 8
      for (int p = 0; p < Panels; ++p) {
#pragma GCC unroll 4
        for (int v = 0; v < kPanelVectors; ++v) {
          const PanelVector w = Codec::take(steps[p], j, v);
          if (!counts) continue;
#pragma GCC unroll 16
          for (int r = 0; r < Rows; ++r) sums[r][p][v] = hn::MulAdd(hn::Set(PanelTag(), a[r]), w, sums[r][p][v]);
        }
      }
      if (counts) a += a_step;
    }
  }

  void run(int64_t k0, int64_t k1, const float* HWY_RESTRICT a, int64_t a_step, bool from_zero, float* tile) const {
    constexpr int64_t kStep = Codec::kStep;
    Sums sums;
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
      for (int p = 0; p < Panels; ++p) {
#pragma GCC unroll 4
        for (int v = 0; v < kPanelVectors; ++v)
          sums[r][p][v] = from_zero ? hn::Zero(PanelTag())
                                    : hn::LoadU(PanelTag(), tile + (r * Panels + p) * kPanelRows + v * kPanelLanes);
      }
    }
    for (int64_t k = k0; k < k1;) {
      BlockScales scales[Panels];
      int64_t end = k1;
      if constexpr (Codec::kBlock != 0) {
        const int64_t block = k / Codec::kBlock;
        end = std::min(end, (block + 1) * Codec::kBlock);
#pragma GCC unroll 8
        for (int p = 0; p < Panels; ++p) scales[p] = Codec::scales(block_codes[p], block);
      }
      typename Codec::Step steps[Panels];
      int64_t whole = k % kStep == 0 ? (end - k) / kStep : 0;
      for (; whole > 0; --whole, k += kStep, a += kStep * a_step) {
#pragma GCC unroll 8
        for (int p = 0; p < Panels; ++p) {
          hwy::Prefetch(codes[p] + k / kStep * Codec::kStepBytes + kAhead / Panels);
          Codec::load(codes[p], k / kStep, scales[p], steps[p]);
        }
        step<kStep>(steps, a, a_step, 0, kStep, sums);
      }
      if (k == end) continue;
      const int64_t first = k % kStep, count = std::min(end - k, kStep - first);
#pragma GCC unroll 8
      for (int p = 0; p < Panels; ++p) Codec::load(codes[p], k / kStep, scales[p], steps[p]);
      step<0>(steps, a, a_step, first, count, sums);
      k += count;
      a += count * a_step;
    }
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
      for (int p = 0; p < Panels; ++p) {
#pragma GCC unroll 4
        for (int v = 0; v < kPanelVectors; ++v)
          hn::StoreU(sums[r][p][v], PanelTag(), tile + (r * Panels + p) * kPanelRows + v * kPanelLanes);
      }
    }
  }
};

template <class Codec, int Rows, int Panels>
void multiply_tile(const MatmulArgs& args, const PanelPlace& at, const float* a, int64_t a_step) {
  constexpr int kCols = Panels * static_cast<int>(kPanelRows);
  const PackedMatrix& b = *args.packed;
  const int64_t depth = b.cols, col = at.panel * kPanelRows;
  const TilePlace tile{at.row, at.rows, col, std::min(at.panels * kPanelRows, b.rows - col)};
  Multiply<Codec, Rows, Panels> multiply;
  for (int p = 0; p < Panels; ++p) {
    const int64_t panel = at.panel + std::min<int64_t>(p, at.panels - 1);
    multiply.codes[p] = b.codes.data() + panel * panel_bytes(b.format, depth);
    multiply.block_codes[p] = b.block_codes.data() + panel * panel_block_bytes(b.scaling, depth);
  }
  alignas(64) float total[Rows * kCols], partial[Rows * kCols];
  if (args.k_tile == 0) {
    if (args.accumulate) start_tile<Rows, kCols>(args, tile, total);
    multiply.run(0, depth, a, a_step, !args.accumulate, total);
  } else {
    start_tile<Rows, kCols>(args, tile, total);
    for (int64_t k = 0; k < depth; k += args.k_tile) {
      multiply.run(k, std::min(depth, k + args.k_tile), a + k * a_step, a_step, true, partial);
      add_partial<Rows, kCols>(args, tile, k, partial, total);
    }
  }
  for (int64_t r = 0; r < at.rows; ++r) finish_row(args, at.row + r, col, tile.cols, total + r * kCols);
}

/// A block of interleaved rows, Rows of them at a time, against up to kGroupPanels panels, Panels at a time.
template <class Codec, int Rows, int Panels>
void multiply_group(const MatmulArgs& args, const PanelPlace& group, const float* a, int64_t width) {
  for (int64_t p = 0; p < group.panels; p += Panels)
    for (int64_t r = 0; r < group.rows; r += Rows)
      multiply_tile<Codec, Rows, Panels>(args,
                                         {group.row + r, std::min<int64_t>(Rows, group.rows - r), group.panel + p,
                                          std::min<int64_t>(Panels, group.panels - p)},
                                         a + r, width);
}

/// All rows against panels [begin, end).
template <class Codec>
void multiply_panels(const FewRows& job, int64_t begin, int64_t end) {
  const MatmulArgs& args = *job.args;
  const int64_t m = args.a.rows, depth = args.a.cols;
  for (int64_t panel = begin; panel < end; panel += kGroupPanels) {
    for (int64_t row = 0; row < m; row += kRowBlock) {
      const PanelPlace group{row, std::min(kRowBlock, m - row), panel, std::min(kGroupPanels, end - panel)};
      const int64_t width = interleaved_width(group.rows);
      const float* a = job.a + row * depth;
      // Sums and decoded weights fill 32 or 16 registers.
      if (width == 1)
        multiply_group<Codec, 1, 4>(args, group, a, width);
      else if (width == 2)
        multiply_group<Codec, 2, kManyRegisters ? 4 : 2>(args, group, a, width);
      else if (width == 4 || !kManyRegisters)
        multiply_group<Codec, 4, kManyRegisters ? 4 : 1>(args, group, a, width);
      else if (width == 8)
        multiply_group<Codec, kManyRegisters ? 8 : 4, kManyRegisters ? 2 : 1>(args, group, a, width);
      else if (width == 12)
        multiply_group<Codec, kManyRegisters ? 12 : 4, 1>(args, group, a, width);
      else
        multiply_group<Codec, kManyRegisters ? 16 : 4, 1>(args, group, a, width);
    }
  }
}

void run_panels(const FewRows& job, int64_t begin, int64_t end) {
  visit_codec(*job.args->packed, !job.scaled, [&]<class Codec>() { multiply_panels<Codec>(job, begin, end); });
}

int64_t find_input_factor(const PackedMatrix& b) {
  int64_t factor = 1;
  visit_codec(b, false, [&]<class Codec>() { factor = Codec::kInputFactor; });
  return factor;
}

}  // namespace motley::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace motley::kernels::cpu {

HWY_EXPORT(run_panels);
HWY_EXPORT(find_input_factor);

namespace {

constexpr int64_t kWorthAThread = int64_t{1} << 16;  // products that pay for waking a thread

/// Fills FewRows::a with the inputs times `factor`. Returns whether all are finite.
template <class T>
bool interleave_rows(const ConstMatrix& a, float factor, float* out) {
  constexpr int64_t kRun = 64;  // columns at a time: what they fill stays in the first cache until all rows are there
  bool finite = true;
  for (int64_t row = 0; row < a.rows; row += kRowBlock, out += kRowBlock * a.cols) {
    const int64_t rows = std::min(kRowBlock, a.rows - row), width = interleaved_width(rows);
    if (rows < width) std::fill_n(out, width * a.cols, 0.0f);
    for (int64_t begin = 0; begin < a.cols; begin += kRun) {
      const int64_t end = std::min(a.cols, begin + kRun);
      for (int64_t r = 0; r < rows; ++r) {
        const T* in = static_cast<const T*>(a.data) + (row + r) * a.row_stride;
        for (int64_t k = begin; k < end; ++k) {
          const float value = load(in[k * a.col_stride]) * factor;
          finite = finite && std::fabs(value) < INFINITY;
          out[k * width + r] = value;
        }
      }
    }
  }
  return finite;
}
bool interleave_rows(const ConstMatrix& a, float factor, float* out) {
  if (a.dtype == DType::f32) return interleave_rows<float>(a, factor, out);
  if (a.dtype == DType::bf16) return interleave_rows<bf16>(a, factor, out);
  if (a.dtype == DType::f16) return interleave_rows<fp16>(a, factor, out);
  throw std::logic_error("matmul: float64 mixed with another type");
}

}  // namespace

void few_rows_product(const MatmulArgs& args) {
  const int64_t m = args.a.rows, depth = args.a.cols;
  const auto factor = static_cast<float>(HWY_DYNAMIC_DISPATCH(find_input_factor)(*args.packed));
  FewRows job{&args, static_cast<const float*>(args.a.data), true};
  const bool in_place = m == 1 && factor == 1.0f && args.a.dtype == DType::f32 && args.a.col_stride == 1;
  if (!in_place) {
    float* a = scratch<struct InterleavedRows, float>((m + kRowBlock - 1) / kRowBlock * kRowBlock * depth);
    const bool finite = interleave_rows(args.a, factor, a);
    job.scaled = finite || factor == 1.0f;  // an input that the factor would overflow takes the exact codec
    if (!job.scaled) interleave_rows(args.a, 1.0f, a);
    job.a = a;
  }
  const int64_t groups = (args.packed->rows + kPanelRows * kGroupPanels - 1) / (kPanelRows * kGroupPanels);
  const int64_t panels = (args.packed->rows + kPanelRows - 1) / kPanelRows;
  parallel_for(groups, 1 + kWorthAThread / (m * kGroupPanels * kPanelRows * depth), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(run_panels)(job, begin * kGroupPanels, std::min(panels, end * kGroupPanels));
  });
}

}  // namespace motley::kernels::cpu
#endif
