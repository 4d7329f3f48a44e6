// Products, and exponentials of double, for attention_tile.cpp and attention_backward_tile.cpp, compiled once per
// instruction set (hence no #pragma once).
#if defined(MOTLEY_ATTENTION_MICRO_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MOTLEY_ATTENTION_MICRO_INL_H
#undef MOTLEY_ATTENTION_MICRO_INL_H
#else
#define MOTLEY_ATTENTION_MICRO_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <limits>
#include <type_traits>

#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/vector_math-inl.h"
#include "kernels/math.h"

HWY_BEFORE_NAMESPACE();
namespace motley::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class C>
using Tag = hn::CappedTag<C, kKeyPanel>;
template <class C>
using Vector = hn::Vec<Tag<C>>;
template <class C>
constexpr int64_t kWidth = static_cast<int64_t>(hn::MaxLanes(Tag<C>()));
template <class C>
constexpr int kVectorsPerPanel = static_cast<int>(kKeyPanel / kWidth<C>);

/// The second operand of a product: sixteen columns are a panel, [depth][...][16].
template <class C>
struct Panels {
  const C* data;
  int64_t panel_step, depth_step, count;
  Panels from(int64_t panel) const { return {data + panel * panel_step, panel_step, depth_step, count - panel}; }
};

/// What a product asks for at each step.
struct Asking {
  Ahead* ahead = nullptr;
  int64_t lines = 0;
};

/// out[r][c] = chain over k of a[r][k] * b[k][c], from zero or from what is there. Masked: steps whose weight is
/// negative leave the sum untouched, whatever they would multiply. `weights` is laid out as `a`.
template <class C, int Rows, int PanelCount, int64_t RowStep, int64_t DepthStep, bool Masked>
void multiply(const C* HWY_RESTRICT a, const C* HWY_RESTRICT weights, const Panels<C>& b, int64_t depth,
              C* HWY_RESTRICT out, int64_t out_stride, bool from_zero, const Asking& asking) {
  constexpr int kPer = kVectorsPerPanel<C>, kVectors = PanelCount * kPer;
  const Tag<C> tag;
  Vector<C> sums[Rows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v)
      sums[r][v] = from_zero ? hn::Zero(tag) : hn::LoadU(tag, out + r * out_stride + v * kWidth<C>);
  }
  const C* row = b.data;
  for (int64_t k = 0; k < depth; ++k, row += b.depth_step) {
    if (asking.lines > 0) asking.ahead->ask(asking.lines);
    Vector<C> columns[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v)
      columns[v] = hn::LoadU(tag, row + (v / kPer) * b.panel_step + (v % kPer) * kWidth<C>);
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      const Vector<C> value = hn::Set(tag, a[r * RowStep]);
      if constexpr (Masked) {
        const auto skip = hn::Lt(hn::Set(tag, weights[r * RowStep]), hn::Zero(tag));
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v)
          sums[r][v] = hn::IfThenElse(skip, sums[r][v], hn::MulAdd(value, columns[v], sums[r][v]));
      } else {
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(value, columns[v], sums[r][v]);
      }
    }
    a += DepthStep;
    if constexpr (Masked) weights += DepthStep;
  }
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[r][v], tag, out + r * out_stride + v * kWidth<C>);
  }
}

/// The same for every panel of b, PanelCount at a time while they last.
template <class C, int Rows, int PanelCount, int64_t RowStep, int64_t DepthStep, bool Masked>
void multiply_panels(const C* a, const C* weights, const Panels<C>& b, int64_t depth, C* out, int64_t out_stride,
                     bool from_zero, const Asking& asking) {
  int64_t p = 0;
  for (; p + PanelCount <= b.count; p += PanelCount)
    multiply<C, Rows, PanelCount, RowStep, DepthStep, Masked>(a, weights, b.from(p), depth, out + p * kKeyPanel,
                                                              out_stride, from_zero, asking);
  if constexpr (PanelCount > 2) {
    for (; p + 2 <= b.count; p += 2)
      multiply<C, Rows, 2, RowStep, DepthStep, Masked>(a, weights, b.from(p), depth, out + p * kKeyPanel, out_stride,
                                                       from_zero, asking);
  }
  for (; p < b.count; ++p)
    multiply<C, Rows, 1, RowStep, DepthStep, Masked>(a, weights, b.from(p), depth, out + p * kKeyPanel, out_stride,
                                                     from_zero, asking);
}

/// A tile of up to kRowTile rows. Eight chains hide the latency of a multiply-add, and fit sixteen registers; with 32
/// registers up to sixteen chains load less. Rows up to the next size of a kernel are computed too.
template <class C, int64_t RowStep, int64_t DepthStep, bool Masked>
void multiply_rows(int64_t rows, const C* a, const C* weights, const Panels<C>& b, int64_t depth, C* out,
                   int64_t out_stride, bool from_zero, const Asking& asking = {}) {
  constexpr int kPer = kVectorsPerPanel<C>;
  if (rows == 1)
    return multiply_panels<C, 1, (kPer < 4 ? 4 : 2), RowStep, DepthStep, Masked>(a, weights, b, depth, out, out_stride,
                                                                                 from_zero, asking);
  if constexpr (kPer == 1) {
    if (rows == 2)
      return multiply_panels<C, 2, 4, RowStep, DepthStep, Masked>(a, weights, b, depth, out, out_stride, from_zero,
                                                                  asking);
    if (rows == 3)
      return multiply_panels<C, 3, 4, RowStep, DepthStep, Masked>(a, weights, b, depth, out, out_stride, from_zero,
                                                                  asking);
    if (rows > 4)
      return multiply_panels<C, 8, 2, RowStep, DepthStep, Masked>(a, weights, b, depth, out, out_stride, from_zero,
                                                                  asking);
    return multiply_panels<C, 4, 4, RowStep, DepthStep, Masked>(a, weights, b, depth, out, out_stride, from_zero,
                                                                asking);
  } else {
    constexpr int kRows = kPer < 4 ? 4 : 2;
    for (int64_t r = 0; r < rows; r += kRows)
      multiply_panels<C, kRows, 1, RowStep, DepthStep, Masked>(a + r * RowStep, weights + r * RowStep, b, depth,
                                                               out + r * out_stride, out_stride, from_zero, asking);
  }
}

static_assert(std::is_same_v<Vector<float>, RowVector>, "exponential_below takes vectors of either name");
inline Vector<double> exponential_below(Vector<double> x) {
  const Tag<double> tag;
  double lanes[kWidth<double>];
  hn::StoreU(x, tag, lanes);
  for (double& lane : lanes) lane = exponential(lane);
  return hn::LoadU(tag, lanes);
}

}  // namespace motley::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
