#include "kernels/matmul.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/few_rows.h"
#include "kernels/cpu/matmul_f64.h"
#include "kernels/cpu/matmul_finish.h"
#include "kernels/cpu/matmul_inner.h"
#include "kernels/cpu/matmul_pack.h"
#include "kernels/cpu/packed_panel.h"
#include "kernels/cpu/scratch.h"
#include "kernels/parallel.h"

namespace motley::kernels::cpu {
namespace {

constexpr int64_t kPackedFloats = int64_t{1} << 21;  // of B at a time; A is read again for each such slab
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

/// The panels of an fp32 weight lie as the inner kernel reads them; null for any other second operand.
const float* float_panels(const PackedMatrix* b) {
  return b != nullptr && b->format == Format::fp32 ? reinterpret_cast<const float*>(b->codes.data()) : nullptr;
}

/// All rows against panels [begin, end); `panels` starts at `begin`. Split over rows, or over panels when rows are few.
void multiply_panels(const MatmulArgs& args, int64_t n, const float* panels, int64_t begin, int64_t end) {
  const int64_t m = args.c.rows, depth = args.a.cols, size = depth * kPanel;
  const int64_t blocks = (m + kBlockRows - 1) / kBlockRows;
  if (blocks >= 2 * compute_threads() || blocks >= end - begin) {
    const int64_t block_work = kBlockRows * kPanel * (end - begin) * depth;
    parallel_for(blocks, 1 + kWorthAThread / block_work, [&](int64_t first, int64_t last) {
      matmul_piece({&args, panels, first * kBlockRows, std::min(m, last * kBlockRows), begin, end, n});
    });
  } else {
    parallel_for(end - begin, 1 + kWorthAThread / (m * size), [&](int64_t first, int64_t last) {
      matmul_piece({&args, panels + first * size, 0, m, begin + first, begin + last, n});
    });
  }
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
  const int64_t step = std::max<int64_t>(3, kPackedFloats / size / 3 * 3);
  for (int64_t begin = 0; begin < panels; begin += step) {
    const int64_t end = std::min(panels, begin + step);
    if (const float* in_place = float_panels(args.packed)) {
      multiply_panels(args, n, in_place + begin * size, begin, end);
      continue;
    }
    float* packed = scratch<struct PackedPanels, float>((end - begin) * size);
    parallel_for(end - begin, 1 + (int64_t{1} << 16) / size, [&](int64_t first, int64_t last) {
      for (int64_t p = first; p < last; ++p) {
        if (args.packed != nullptr)
          decode_panel(*args.packed, begin + p, 0, depth, packed + p * size);
        else
          pack_panel(args.b, begin + p, packed + p * size);
      }
    });
    multiply_panels(args, n, packed, begin, end);
  }
}

}  // namespace motley::kernels::cpu
