#include "kernels/cpu/attention_tile.h"

#include "kernels/cpu/highway_baseline.h"
#include "kernels/cpu/transpose.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_tile.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include "kernels/cpu/attention_micro-inl.h"

HWY_BEFORE_NAMESPACE();
namespace motley::kernels::cpu::HWY_NAMESPACE {

/// Four columns of rows 0, 4, 8, ... as one vector.
template <class D>
hn::Vec<D> load_quads(D tag, const float* at, int64_t stride) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return hn::LoadU(tag, at);
  } else {
    const hn::Half<D> half;
    constexpr auto kRows = static_cast<int64_t>(hn::MaxLanes(D()) / 2);
    return hn::Combine(tag, load_quads(half, at + kRows * stride, stride), load_quads(half, at, stride));
  }
}
/// Four columns of sixteen rows as four vectors of sixteen.
void transpose_columns(const float* in, int64_t stride, float* out) {
  const Tag<float> tag;
  const hn::Repartition<double, Tag<float>> pairs;
  const auto quads = [&](int64_t row) { return load_quads(tag, in + row * stride, stride); };
  for (int64_t r = 0; r < kKeyPanel; r += kWidth<float>) {
    const auto r0 = quads(r), r1 = quads(r + 1), r2 = quads(r + 2), r3 = quads(r + 3);
    const auto a = hn::BitCast(pairs, hn::InterleaveLower(tag, r0, r1));
    const auto b = hn::BitCast(pairs, hn::InterleaveLower(tag, r2, r3));
    const auto c = hn::BitCast(pairs, hn::InterleaveUpper(tag, r0, r1));
    const auto d = hn::BitCast(pairs, hn::InterleaveUpper(tag, r2, r3));
    hn::StoreU(hn::BitCast(tag, hn::InterleaveLower(pairs, a, b)), tag, out + r);
    hn::StoreU(hn::BitCast(tag, hn::InterleaveUpper(pairs, a, b)), tag, out + kKeyPanel + r);
    hn::StoreU(hn::BitCast(tag, hn::InterleaveLower(pairs, c, d)), tag, out + 2 * kKeyPanel + r);
    hn::StoreU(hn::BitCast(tag, hn::InterleaveUpper(pairs, c, d)), tag, out + 3 * kKeyPanel + r);
  }
}
void transpose_panel(const float* rows, int64_t padded, float* out) {
  for (int64_t d = 0; d < padded; d += 4) transpose_columns(rows + d, padded, out + d * kKeyPanel);
}
void transpose_panel(const double* rows, int64_t padded, double* out) { transpose16(rows, padded, padded, out); }

template <class C>
void panels_of(const C* rows, int64_t count, int64_t padded, C* out) {
  for (int64_t i = 0; i < count; i += kKeyPanel) transpose_panel(rows + i * padded, padded, out + i * padded);
}

template <class C>
void scale_row(C factor, int64_t count, C* row) {
  const Tag<C> tag;
  for (int64_t i = 0; i < count; i += kWidth<C>)
    hn::StoreU(hn::Mul(hn::LoadU(tag, row + i), hn::Set(tag, factor)), tag, row + i);
}

/// Turns the products of a row with `size` keys, of which `count` are its own, into weights relative to the row's
/// largest score, -1 for the others, and adds them to its sums.
template <class C>
void weigh(const AttendTile<C>& tile, int64_t row, int64_t count, int64_t size, C* scores) {
  constexpr C kLowest = -std::numeric_limits<C>::infinity();
  constexpr int kPer = kVectorsPerPanel<C>;
  const Tag<C> tag;
  const auto own = [&](int64_t i) { return hn::FirstN(tag, static_cast<size_t>(std::max<int64_t>(0, count - i))); };
  Vector<C> most = hn::Set(tag, kLowest);
  for (int64_t i = 0; i < size; i += kWidth<C>) {
    Vector<C> x = hn::Mul(hn::LoadU(tag, scores + i), hn::Set(tag, tile.scale));
    if (count < i + kWidth<C>) x = hn::IfThenElse(own(i), x, hn::Set(tag, kLowest));
    hn::StoreU(x, tag, scores + i);
    most = hn::IfThenElse(hn::Gt(x, most), x, most);  // leaves NaN out
  }
  const C before = tile.state.largest[row], largest = std::max(before, hn::GetLane(hn::MaxOfLanes(tag, most)));
  const C shift = largest == kLowest ? C{0} : largest;
  C* sums = tile.state.sums + row * kKeyPanel;
  if (largest != before) tile.state.largest[row] = largest;
  if (largest != before && before != kLowest) {  // before the first score there is nothing to scale
    const C factor = exponential(before - shift);
    scale_row(factor, kKeyPanel, sums);
    scale_row(factor, tile.padded, tile.state.out + row * tile.padded);
  }
  Vector<C> lanes[kPer];
  for (int v = 0; v < kPer; ++v) lanes[v] = hn::LoadU(tag, sums + v * kWidth<C>);
  for (int64_t i = 0; i < size; i += kKeyPanel) {
    for (int v = 0; v < kPer; ++v) {
      C* at = scores + i + v * kWidth<C>;
      Vector<C> weight = exponential_below(hn::Sub(hn::LoadU(tag, at), hn::Set(tag, shift)));
      lanes[v] = hn::Add(lanes[v], weight);
      if (count < i + (v + 1) * kWidth<C>) weight = hn::IfThenElse(own(i + v * kWidth<C>), weight, hn::Set(tag, C{-1}));
      hn::StoreU(weight, tag, at);
    }
  }
  for (int v = 0; v < kPer; ++v) hn::StoreU(lanes[v], tag, sums + v * kWidth<C>);
}

template <class C>
void attend(const AttendTile<C>& tile) {
  alignas(64) C scores[kRowTile * kKeyTile];
  const Asking asking{tile.ahead, tile.ahead_lines};
  const Panels<C> values{tile.values, kKeyPanel, tile.padded, tile.padded / kKeyPanel};
  for (int64_t row = 0; row < tile.rows; row += kRowTile) {
    int64_t counts[kRowTile], rows = 0, least = kKeyTile, most = 0;
    for (int64_t r = 0; r < kRowTile; ++r) {
      counts[r] = std::clamp<int64_t>(tile.limits[row + r] - tile.first, 0, kKeyTile);
      if (tile.limits[row + r] == 0) continue;
      rows = r + 1;
      least = std::min(least, counts[r]);
      most = std::max(most, counts[r]);
    }
    if (most == 0) continue;
    const int64_t size = rounded_up(most, kKeyPanel);
    const Panels<C> keys{tile.key_panels, kKeyPanel * tile.padded, kKeyPanel, size / kKeyPanel};
    const C* q = tile.q + row * tile.head_dim;
    multiply_rows<C, 1, kRowTile, false>(rows, q, q, keys, tile.head_dim, scores, kKeyTile, true, asking);
    for (int64_t r = 0; r < rows; ++r) weigh(tile, row + r, counts[r], size, scores + r * kKeyTile);
    C* out = tile.state.out + row * tile.padded;
    if (least > 0)
      multiply_rows<C, kKeyTile, 1, false>(rows, scores, scores, values, least, out, tile.padded, false, asking);
    if (most > least) {
      const Panels<C> rest{values.data + least * tile.padded, values.panel_step, values.depth_step, values.count};
      const C* weights = scores + least;
      multiply_rows<C, kKeyTile, 1, true>(rows, weights, weights, rest, most - least, out, tile.padded, false);
    }
  }
}

void panels_f32(const float* rows, int64_t count, int64_t padded, float* out) { panels_of(rows, count, padded, out); }
void panels_f64(const double* rows, int64_t count, int64_t padded, double* out) { panels_of(rows, count, padded, out); }
void attend_f32(const AttendTile<float>& tile) { attend(tile); }
void attend_f64(const AttendTile<double>& tile) { attend(tile); }

}  // namespace motley::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
static_assert(!HWY_ARCH_X86 || HWY_STATIC_TARGET <= HWY_AVX2, "every instruction set must fuse multiply-adds");

namespace motley::kernels::cpu {

HWY_EXPORT(panels_f32);
HWY_EXPORT(panels_f64);
HWY_EXPORT(attend_f32);
HWY_EXPORT(attend_f64);
void pack_panels(const float* rows, int64_t count, int64_t padded, float* panels) {
  HWY_DYNAMIC_DISPATCH(panels_f32)(rows, count, padded, panels);
}
void pack_panels(const double* rows, int64_t count, int64_t padded, double* panels) {
  HWY_DYNAMIC_DISPATCH(panels_f64)(rows, count, padded, panels);
}
void attend_tile(const AttendTile<float>& tile) { HWY_DYNAMIC_DISPATCH(attend_f32)(tile); }
void attend_tile(const AttendTile<double>& tile) { HWY_DYNAMIC_DISPATCH(attend_f64)(tile); }

}  // namespace motley::kernels::cpu
#endif
