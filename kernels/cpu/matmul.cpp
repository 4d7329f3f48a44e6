#include "kernels/matmul.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "kernels/cpu/few_rows.h"
#include "kernels/cpu/matmul_f64.h"
#include "kernels/cpu/matmul_finish.h"
#include "kernels/cpu/matmul_inner.h"
#include "kernels/cpu/matmul_pack.h"
#include "kernels/cpu/packed_panel.h"
#include "kernels/cpu/scratch.h"
#include "kernels/parallel.h"
#include "kernels/pointwise.h"

namespace motley::kernels::cpu {
namespace {

constexpr int64_t kPackedFloats = int64_t{1} << 21;  // of B at a time; A is read again for each such slab
constexpr int64_t kDecodedRows = 128;                // of C up to which panels are decoded as they are multiplied
constexpr int64_t kWorthAThread = int64_t{1} << 19;  // products that pay for waking a thread

/// K = 0: every sum is empty.
void clear(const MatmulArgs& args, int64_t n) {
  if (args.accumulate) return;
  for (int64_t r = 0; r < args.c.rows; ++r) {
    for (int64_t c = 0; c < n; c += kFinishColumns) {
      const int64_t count = std::min(kFinishColumns, n - c);
      if (args.c.dtype == DType::f64) {
        for (int64_t i = c; i < c + count; ++i)
          static_cast<double*>(args.c.data)[r * args.c.row_stride + i * args.c.col_stride] = 0.0;
      } else {
        float sums[kFinishColumns] = {};
        finish_row(args, r, c, count, sums);
      }
    }
  }
}

/// Panels [begin, end) of B as the inner kernel reads them.
struct Panels {
  const float* data;
  int64_t panel_stride, depth_stride;
  Panels from(int64_t panel) const { return {data + panel * panel_stride, panel_stride, depth_stride}; }
};

/// Where B needs no packing: an fp32 weight's panels, and for few rows of C float whose rows lie side by side in whole
/// panels; else null.
Panels panels_in_place(const MatmulArgs& args) {
  if (args.packed == nullptr) {
    const ConstMatrix& b = args.b;
    const bool fits = b.dtype == DType::f32 && b.row_stride == 1 && b.rows % kPanel == 0 && args.c.rows <= kInPlaceRows;
    return {fits ? static_cast<const float*>(b.data) : nullptr, kPanel, b.col_stride};
  }
  const bool plain = args.packed->format == Format::fp32;
  return {plain ? reinterpret_cast<const float*>(args.packed->codes.data()) : nullptr, args.a.cols * kPanel, kPanel};
}

/// Packs panels [begin, end) of B.
Panels pack_panels(const MatmulArgs& args, int64_t begin, int64_t end) {
  const int64_t depth = args.a.cols, size = depth * kPanel;
  float* packed = scratch<struct PackedPanels, float>((end - begin) * size);
  parallel_for(end - begin, 1 + (int64_t{1} << 16) / size, [&](int64_t first, int64_t last) {
    for (int64_t p = first; p < last; ++p) {
      if (args.packed != nullptr)
        decode_panel(*args.packed, begin + p, 0, depth, packed + p * size);
      else
        pack_panel(args.b, begin + p, packed + p * size);
    }
  });
  return {packed, size, kPanel};
}

/// All rows against panels [begin, end). Split over rows, or over panels when rows are few.
void multiply_panels(const MatmulArgs& args, int64_t n, const Panels& panels, int64_t begin, int64_t end) {
  const int64_t m = args.c.rows, depth = args.a.cols;
  const int64_t blocks = (m + kBlockRows - 1) / kBlockRows;
  const auto multiply = [&](int64_t row_begin, int64_t row_end, int64_t first, int64_t last) {
    const Panels part = panels.from(first);
    matmul_piece(
        {&args, part.data, part.panel_stride, part.depth_stride, row_begin, row_end, begin + first, begin + last, n});
  };
  if (blocks >= 2 * compute_threads() || blocks >= end - begin) {
    const int64_t block_work = kBlockRows * kPanel * (end - begin) * depth;
    parallel_for(blocks, 1 + kWorthAThread / block_work, [&](int64_t first, int64_t last) {
      multiply(first * kBlockRows, std::min(m, last * kBlockRows), 0, end - begin);
    });
  } else {
    parallel_for(end - begin, 1 + kWorthAThread / (m * depth * kPanel),
                 [&](int64_t first, int64_t last) { multiply(0, m, first, last); });
  }
}

/// The rows of A as float, if they lie side by side: A itself, or a copy of this thread.
ConstMatrix float_rows(const ConstMatrix& a) {
  if (a.dtype == DType::f32 || a.col_stride != 1) return a;
  float* rows = scratch<struct FloatRows, float>(a.rows * a.cols);
  const auto row_bytes = a.row_stride * static_cast<int64_t>(dtype_size(a.dtype));
  for (int64_t r = 0; r < a.rows; ++r)
    convert(rows + r * a.cols, DType::f32, static_cast<const std::byte*>(a.data) + r * row_bytes, a.dtype, a.cols);
  return row_major(static_cast<const void*>(rows), DType::f32, a.rows, a.cols);
}

/// Few rows against stored weights: panels are decoded as many as a tile takes at a time, which stay in the second
/// cache until they are multiplied.
void decode_and_multiply(const MatmulArgs& args) {
  const int64_t m = args.c.rows, n = args.packed->rows, depth = args.a.cols, size = depth * kPanel;
  const int64_t panels = panel_count(n), groups = (panels + kTilePanels - 1) / kTilePanels;
  MatmulArgs job = args;
  job.a = float_rows(args.a);
  parallel_for(groups, 1 + kWorthAThread / (m * kTilePanels * size), [&](int64_t first, int64_t last) {
    float* decoded = scratch<struct DecodedPanels, float>(kTilePanels * size);
    for (int64_t begin = first * kTilePanels; begin < std::min(panels, last * kTilePanels); begin += kTilePanels) {
      const int64_t end = std::min(panels, begin + kTilePanels);
      for (int64_t p = begin; p < end; ++p) decode_panel(*args.packed, p, 0, depth, decoded + (p - begin) * size);
      matmul_piece({&job, decoded, size, kPanel, 0, m, begin, end, n});
    }
  });
}

}  // namespace

void matmul(const MatmulArgs& args) {
  const int64_t n = args.packed != nullptr ? args.packed->rows : args.b.rows;
  const int64_t depth = args.a.cols;
  if (args.c.rows == 0 || n == 0) return;
  if (depth == 0) return clear(args, n);
  if (args.c.dtype == DType::f64) return matmul_f64(args);
  if (args.packed != nullptr && args.c.rows <= kFewRows) return few_rows_product(args);
  const int64_t panels = panel_count(n), size = depth * kPanel;
  const int64_t step = std::max(kTilePanels, kPackedFloats / size / kTilePanels * kTilePanels);
  const Panels in_place = panels_in_place(args);
  if (args.packed != nullptr && in_place.data == nullptr && args.c.rows <= kDecodedRows)
    return decode_and_multiply(args);
  for (int64_t begin = 0; begin < panels; begin += step) {
    const int64_t end = std::min(panels, begin + step);
    multiply_panels(args, n, in_place.data != nullptr ? in_place.from(begin) : pack_panels(args, begin, end), begin,
                    end);
  }
}

}  // namespace motley::kernels::cpu
