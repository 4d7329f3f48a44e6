#include "kernels/quantized_rows.h"

#include <algorithm>
#include <functional>

#include "kernels/cpu/elements.h"
#include "kernels/parallel.h"
#include "kernels/quantize.h"

namespace motley::kernels {
namespace {

constexpr int64_t kPieceValues = int64_t{1} << 14;  // that pay for waking a thread

Format format_of(DType dtype) {
  return dtype == DType::bf16 ? Format::bf16 : dtype == DType::f16 ? Format::fp16 : Format::fp32;
}

/// Room for `count` floats, whose values are undefined.
float* room(std::vector<float>& buffer, int64_t count) {
  if (static_cast<int64_t>(buffer.size()) < count) buffer.resize(static_cast<size_t>(count));
  return buffer.data();
}

}  // namespace

bool sums_by_blocks(const NumericProfile& profile) {
  return profile.weight.scaling == Scaling::block128x128 || profile.weight.scaling == Scaling::block1x128 ||
         profile.activation.scaling == Scaling::block1x128;
}

void QuantizedRows::assign(const void* x, int64_t rows, int64_t cols, const NumericProfile& profile) {
  activation_ = profile.activation;
  const Scaling scaling = activation_.scaling;
  has_block_scales_ = sums_by_blocks(profile);
  has_factors_ = scaling == Scaling::tensor || scaling == Scaling::channel || scaling == Scaling::nv16;
  const int64_t blocks = has_block_scales_ ? (cols + 127) / 128 : 0;
  float* block_scales = room(block_scales_, rows * blocks);
  if (scaling != Scaling::block1x128) std::fill_n(block_scales, rows * blocks, 1.0f);
  if (scaling == Scaling::none &&
      (activation_.format == Format::fp32 || activation_.format == format_of(profile.output))) {
    values_ = row_major(x, profile.output, rows, cols);
    return;
  }
  float* values = room(floats_, rows * cols);
  float* factors = room(factors_, rows);
  values_ = row_major(static_cast<const void*>(values), DType::f32, rows, cols);
  visit_dtype(profile.output, [&]<class T>(T) {
    if constexpr (!std::is_same_v<T, double>) {
      const auto piece = [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          cpu::load(values + r * cols, static_cast<const T*>(x) + r * cols, cols);
          factors[r] = quantize_activation(values + r * cols, cols, activation_, block_scales + r * blocks);
        }
      };
      parallel_for(rows, 1 + kPieceValues / (cols + 1), std::ref(piece));
    }
  });
}

}  // namespace motley::kernels
