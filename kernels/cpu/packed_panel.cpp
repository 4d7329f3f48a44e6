#include "kernels/cpu/packed_panel.h"

#include <algorithm>

#include "kernels/cpu/highway_baseline.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/packed_panel.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/packed_panel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace motley::kernels::cpu::HWY_NAMESPACE {

template <class Codec>
HWY_INLINE void decode_step(const uint8_t* codes, int64_t step, const BlockScales& scales, float* out) {
  typename Codec::Step decoded;
  Codec::load(codes, step, scales, decoded);
#pragma GCC unroll 8
  for (int j = 0; j < Codec::kStep; ++j) {
#pragma GCC unroll 4
    for (int v = 0; v < kPanelVectors; ++v)
      hn::StoreU(Codec::take(decoded, j, v), PanelTag(), out + j * kPanelRows + v * kPanelLanes);
  }
}

template <class Codec>
void decode_columns(const uint8_t* codes, const uint8_t* block_codes, int64_t k0, int64_t k1, float* out) {
  constexpr int64_t kStep = Codec::kStep;
  for (int64_t k = k0; k < k1;) {
    BlockScales scales{};
    int64_t end = k1;
    if constexpr (Codec::kBlock != 0) {
      scales = Codec::scales(block_codes, k / Codec::kBlock);
      end = std::min(end, (k / Codec::kBlock + 1) * Codec::kBlock);
    }
    for (; k < end && k % kStep == 0 && k + kStep <= end; k += kStep, out += kStep * kPanelRows)
      decode_step<Codec>(codes, k / kStep, scales, out);
    if (k == end) continue;
    alignas(kPanelAlignment) float values[kStep * kPanelRows];
    const int64_t step = k / kStep, stop = std::min(end, (step + 1) * kStep);
    decode_step<Codec>(codes, step, scales, values);
    std::copy(values + (k - step * kStep) * kPanelRows, values + (stop - step * kStep) * kPanelRows, out);
    out += (stop - k) * kPanelRows;
    k = stop;
  }
}

void decode_panel_here(const PackedMatrix& b, int64_t panel, int64_t k0, int64_t k1, float* out) {
  const uint8_t* codes = b.codes.data() + panel * panel_bytes(b.format, b.cols);
  const uint8_t* block_codes = b.block_codes.data() + panel * panel_block_bytes(b.scaling, b.cols);
  visit_codec(b, true, [&]<class Codec>() { decode_columns<Codec>(codes, block_codes, k0, k1, out); });
}

}  // namespace motley::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace motley::kernels::cpu {

HWY_EXPORT(decode_panel_here);
void decode_panel(const PackedMatrix& b, int64_t panel, int64_t k0, int64_t depth, float* out) {
  HWY_DYNAMIC_DISPATCH(decode_panel_here)(b, panel, k0, k0 + depth, out);
}

}  // namespace motley::kernels::cpu
#endif
