#include "kernels/cpu/attention_backward_tile.h"

#include "kernels/cpu/highway_baseline.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_backward_tile.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include "kernels/cpu/attention_micro-inl.h"

HWY_BEFORE_NAMESPACE();
namespace motley::kernels::cpu::HWY_NAMESPACE {

/// weights holds the products of a row's q with `size` keys and gets exp(score - lse), -1 for keys that are not its
/// own; slopes holds those of its dy with the values and gets the derivative by the products with q, 0 for others.
template <class C>
void slopes_of(const BackwardTile<C>& tile, int64_t row, int64_t count, int64_t size) {
  const Tag<C> tag;
  const auto scale = hn::Set(tag, tile.scale), lse = hn::Set(tag, tile.lse[row]), mean = hn::Set(tag, tile.mean[row]);
  for (int64_t i = 0; i < size; i += kWidth<C>) {
    C* weight_at = tile.weights + row * kKeyTile + i;
    C* slope_at = tile.slopes + row * kKeyTile + i;
    Vector<C> weight = exponential_below(hn::Sub(hn::Mul(hn::LoadU(tag, weight_at), scale), lse));
    Vector<C> slope = hn::Mul(hn::Mul(weight, hn::Sub(hn::LoadU(tag, slope_at), mean)), scale);
    if (count < i + kWidth<C>) {
      const auto own = hn::FirstN(tag, static_cast<size_t>(std::max<int64_t>(0, count - i)));
      weight = hn::IfThenElse(own, weight, hn::Set(tag, C{-1}));
      slope = hn::IfThenElseZero(own, slope);
    }
    hn::StoreU(weight, tag, weight_at);
    hn::StoreU(slope, tag, slope_at);
  }
}

/// The rows' weights and slopes, and what they add to dq.
template <class C>
void differentiate_rows(const BackwardTile<C>& tile) {
  const Panels<C> keys{tile.keys, kKeyPanel, tile.padded, tile.padded / kKeyPanel};
  for (int64_t row = 0; row < tile.rows; row += kRowTile) {
    const int64_t rows = std::min(kRowTile, tile.rows - row);
    const auto count = [&](int64_t r) { return std::clamp<int64_t>(tile.limits[r] - tile.first, 0, kKeyTile); };
    const int64_t least = count(row), most = count(row + rows - 1);
    if (most == 0) continue;
    const int64_t size = rounded_up(most, kKeyPanel), panels = size / kKeyPanel, step = kKeyPanel * tile.padded;
    C *weights = tile.weights + row * kKeyTile, *slopes = tile.slopes + row * kKeyTile;
    const C *q = tile.q + row * tile.head_dim, *dy = tile.dy + row * tile.head_dim;
    multiply_rows<C, 1, kRowTile, false>(rows, q, q, {tile.key_panels, step, kKeyPanel, panels}, tile.head_dim, weights,
                                         kKeyTile, true);
    multiply_rows<C, 1, kRowTile, false>(rows, dy, dy, {tile.value_panels, step, kKeyPanel, panels}, tile.head_dim,
                                         slopes, kKeyTile, true);
    for (int64_t r = row; r < row + rows; ++r) slopes_of(tile, r, count(r), size);
    if (tile.dq == nullptr) continue;
    C* dq = tile.dq + row * tile.padded;
    multiply_rows<C, kKeyTile, 1, false>(rows, slopes, weights, keys, least, dq, tile.padded, false);
    const Panels<C> rest{keys.data + least * tile.padded, keys.panel_step, keys.depth_step, keys.count};
    multiply_rows<C, kKeyTile, 1, true>(rows, slopes + least, weights + least, rest, most - least, dq, tile.padded,
                                        false);
  }
}

/// out[j][d] += sum over rows, ascending, of factors[row][j] * rows[row][d]: kRowTile keys from j on, rows from `any`
/// on, of which those from `all` on attend to all of these keys.
template <class C>
void add_keys(const BackwardTile<C>& tile, const C* factors, const C* rows, int64_t any, int64_t all, int64_t j,
              C* out) {
  const auto from = [&](int64_t row) {
    return Panels<C>{rows + row * tile.padded, kKeyPanel, tile.padded, tile.padded / kKeyPanel};
  };
  const int64_t masked = any * kKeyTile + j, plain = all * kKeyTile + j;
  if (all > any)
    multiply_rows<C, 1, kKeyTile, true>(kRowTile, factors + masked, tile.weights + masked, from(any), all - any,
                                        out + j * tile.padded, tile.padded, false);
  if (tile.rows > all)
    multiply_rows<C, 1, kKeyTile, false>(kRowTile, factors + plain, factors + plain, from(all), tile.rows - all,
                                         out + j * tile.padded, tile.padded, false);
}

template <class C>
void differentiate(const BackwardTile<C>& tile) {
  differentiate_rows(tile);
  if (tile.dk == nullptr) return;
  const auto first_above = [&](int64_t position) {
    return std::upper_bound(tile.limits, tile.limits + tile.rows, position) - tile.limits;
  };
  for (int64_t j = 0; j < kKeyTile; j += kRowTile) {
    const int64_t any = first_above(tile.first + j), all = first_above(tile.first + j + kRowTile - 1);
    if (any == tile.rows) break;
    add_keys(tile, tile.slopes, tile.q_rows, any, all, j, tile.dk);
    add_keys(tile, tile.weights, tile.dy_rows, any, all, j, tile.dv);
  }
}

void differentiate_f32(const BackwardTile<float>& tile) { differentiate(tile); }
void differentiate_f64(const BackwardTile<double>& tile) { differentiate(tile); }

}  // namespace motley::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace motley::kernels::cpu {

HWY_EXPORT(differentiate_f32);
HWY_EXPORT(differentiate_f64);
void differentiate_tile(const BackwardTile<float>& tile) { HWY_DYNAMIC_DISPATCH(differentiate_f32)(tile); }
void differentiate_tile(const BackwardTile<double>& tile) { HWY_DYNAMIC_DISPATCH(differentiate_f64)(tile); }

}  // namespace motley::kernels::cpu
#endif
