#include "kernels/hopper_fp8.h"

#include <algorithm>
#include <functional>

#include "kernels/cpu/highway_baseline.h"
#include "kernels/cpu/matmul_finish.h"
#include "kernels/cpu/packed_panel.h"
#include "kernels/cpu/scratch.h"
#include "kernels/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/hopper_fp8.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace motley::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::CappedTag<float, kPanelRows>;
using BitsTag = hn::RebindToSigned<Tag>;
using Vector = hn::Vec<Tag>;
constexpr int64_t kWidth = static_cast<int64_t>(hn::MaxLanes(Tag()));

/// The power of two at or below |x|; 0 for 0.
inline Vector power_of(Vector x) {
  return hn::BitCast(Tag(), hn::And(hn::BitCast(BitsTag(), x), hn::Set(BitsTag(), 0x7f800000)));
}

/// One step: a[count], b[count][16] and the accumulators of kWidth outputs. All sums are of integers below 2^21, exact
/// in float in any order; NaN comes through.
inline Vector step(const float* a, const float* b, int64_t count, Vector accumulator) {
  // Larger than no product of two fp8 values but zero, so that zeros alone divide nothing by zero.
  auto top = hn::Max(hn::BitCast(BitsTag(), power_of(accumulator)), hn::BitCast(BitsTag(), hn::Set(Tag(), 0x1p-60f)));
  for (int64_t k = 0; k < count; ++k) {
    const Vector powers = hn::Mul(power_of(hn::Set(Tag(), a[k])), power_of(hn::LoadU(Tag(), b + k * kPanelRows)));
    top = hn::Max(top, hn::BitCast(BitsTag(), powers));
  }
  const auto fraction = hn::Set(BitsTag(), kHopperFraction << 23);
  const Vector unit = hn::BitCast(Tag(), hn::Sub(top, fraction));
  const Vector inverse = hn::BitCast(Tag(), hn::Sub(hn::Add(hn::Set(BitsTag(), 254 << 23), fraction), top));
  Vector sum = hn::Trunc(hn::Mul(accumulator, inverse)), other = hn::Zero(Tag());
  const auto product = [&](int64_t k) {
    const Vector exact = hn::Mul(hn::Set(Tag(), a[k]), hn::LoadU(Tag(), b + k * kPanelRows));
    return hn::Trunc(hn::Mul(exact, inverse));
  };
  int64_t k = 0;
  for (; k + 2 <= count; k += 2) {
    sum = hn::Add(sum, product(k));
    other = hn::Add(other, product(k + 1));
  }
  if (k < count) sum = hn::Add(sum, product(k));
  const auto value = hn::BitCast(BitsTag(), hn::Mul(hn::Add(sum, other), unit));
  return hn::BitCast(Tag(), hn::And(value, hn::Set(BitsTag(), -(1 << (23 - kHopperFraction)))));
}

/// Sums of one row with kWidth columns of a panel, from column `col` of C on; scales[block] of these columns, or null.
Vector sum_row(const MatmulArgs& args, int64_t row, const float* b, const float* b_scales) {
  const int64_t depth = args.a.cols, blocks = (depth + 127) / 128;
  const float* a = static_cast<const float*>(args.a.data) + row * args.a.row_stride;
  Vector total = hn::Zero(Tag()), accumulator = hn::Zero(Tag());
  for (int64_t k = 0; k < depth;) {
    const int64_t count = std::min(kHopperStep, depth - k);
    accumulator = step(a + k, b + k * kPanelRows, count, accumulator);
    k += count;
    if (k < depth && (args.k_tile == 0 || k % args.k_tile != 0)) continue;
    if (b_scales == nullptr) {
      total = hn::Add(total, accumulator);
    } else {
      const int64_t block = (k - 1) / 128;
      const Vector a_scale = hn::Set(Tag(), args.a_scales[row * blocks + block]);
      const Vector scale = hn::Mul(a_scale, hn::LoadU(Tag(), b_scales + block * kPanelRows));
      total = hn::MulAdd(accumulator, scale, total);
    }
    accumulator = hn::Zero(Tag());
  }
  return total;
}

/// All rows of C in the columns of one panel.
void multiply_panel(const MatmulArgs& args, int64_t panel) {
  const int64_t depth = args.a.cols, blocks = (depth + 127) / 128, first = panel * kPanelRows;
  const int64_t cols = std::min(kPanelRows, args.packed->rows - first);
  float* b = scratch<struct HopperPanel, float>(depth * kPanelRows);
  float* b_scales = scratch<struct HopperScales, float>(blocks * kPanelRows);
  decode_panel(*args.packed, panel, 0, depth, b);
  for (int64_t i = 0; args.b_scales != nullptr && i < blocks * kPanelRows; ++i) {
    const int64_t col = std::min(i % kPanelRows, cols - 1);
    b_scales[i] = args.b_scales[(first + col) / args.b_scale_rows * blocks + i / kPanelRows];
  }
  alignas(64) float sums[kPanelRows];
  for (int64_t r = 0; r < args.c.rows; ++r) {
    for (int64_t c = 0; c < kPanelRows; c += kWidth)
      hn::Store(sum_row(args, r, b + c, args.b_scales == nullptr ? nullptr : b_scales + c), Tag(), sums + c);
    finish_row(args, r, first, cols, sums);
  }
}

void multiply_panels(const MatmulArgs& args, int64_t begin, int64_t end) {
  for (int64_t panel = begin; panel < end; ++panel) multiply_panel(args, panel);
}

}  // namespace motley::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace motley::kernels::cpu {

HWY_EXPORT(multiply_panels);
void hopper_fp8_product(const MatmulArgs& args) {
  const auto piece = [&](int64_t begin, int64_t end) { HWY_DYNAMIC_DISPATCH(multiply_panels)(args, begin, end); };
  parallel_for((args.packed->rows + kPanelRows - 1) / kPanelRows, 1, std::ref(piece));
}

}  // namespace motley::kernels::cpu
#endif
