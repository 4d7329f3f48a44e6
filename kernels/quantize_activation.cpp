// Activations of one token: dynamic scales over that token alone, so that a row never depends on its batch.
#include <algorithm>
#include <stdexcept>

#include "kernels/quantize.h"
#include "kernels/quantize_block.h"

namespace motley::kernels {
namespace {

template <Format F>
void fp8_blocks(float* x, int64_t cols, float* scales) {
  for (int64_t c = 0; c < cols; c += kFp8Block) {
    const int64_t width = std::min(kFp8Block, cols - c);
    const float scale = fp32_scale(block_range(x + c, width).amax, F);
    scales[c / kFp8Block] = scale;
    round_scaled<F>(x + c, x + c, width, scale);
  }
}

template <Format F>
void mx_blocks(float* x, int64_t cols) {
  for (int64_t c = 0; c < cols; c += kMxBlock) {
    const int64_t width = std::min(kMxBlock, cols - c);
    const float scale = ue8m0_to_float(mx_scale(block_range(x + c, width), F));
    round_scaled<F>(x + c, x + c, width, scale);
    for (int64_t i = c; i < c + width; ++i) x[i] *= scale;
  }
}

void nv_block(float* x, float tensor_scale, bool four_over_six) {
  const NvBlock block = nv_encode(x, tensor_scale, four_over_six);
  const float scale = e4m3_to_float(block.scale);
  for (int64_t i = 0; i < kNvBlock; ++i) x[i] = block.elements[i] * scale;
}
float nv_blocks(float* x, int64_t cols, bool four_over_six) {
  const float tensor_scale = nv_tensor_scale(block_range(x, cols).amax);
  const int64_t whole = cols / kNvBlock * kNvBlock;
  for (int64_t c = 0; c < whole; c += kNvBlock) nv_block(x + c, tensor_scale, four_over_six);
  if (whole < cols) {
    std::array<float, kNvBlock> rest{};
    std::copy(x + whole, x + cols, rest.begin());
    nv_block(rest.data(), tensor_scale, four_over_six);
    std::copy_n(rest.begin(), cols - whole, x + whole);
  }
  return tensor_scale;
}

template <Format F>
float quantize_as(float* x, int64_t cols, const Quantization& how, float* block_scales) {
  switch (how.scaling) {
    case Scaling::none:
      round_scaled<F>(x, x, cols, 1.0f);
      return 1.0f;
    case Scaling::tensor:
    case Scaling::channel: {
      const float scale = fp32_scale(block_range(x, cols).amax, F);
      round_scaled<F>(x, x, cols, scale);
      return scale;
    }
    case Scaling::block1x128:
      fp8_blocks<F>(x, cols, block_scales);
      return 1.0f;
    case Scaling::mx32:
      mx_blocks<F>(x, cols);
      return 1.0f;
    case Scaling::nv16:
      return nv_blocks(x, cols, how.four_over_six);
    case Scaling::block128x128:
      break;
  }
  return 1.0f;
}

}  // namespace

void check_activation(const Quantization& how) {
  check_quantization(how);
  if (how.scaling == Scaling::block128x128) {
    throw std::invalid_argument("quantize: 128x128 blocks of activations would mix tokens");
  }
}

float quantize_activation(float* x, int64_t cols, const Quantization& how, float* block_scales) {
  switch (how.format) {
    case Format::bf16:
      return quantize_as<Format::bf16>(x, cols, how, block_scales);
    case Format::fp16:
      return quantize_as<Format::fp16>(x, cols, how, block_scales);
    case Format::e4m3:
      return quantize_as<Format::e4m3>(x, cols, how, block_scales);
    case Format::e5m2:
      return quantize_as<Format::e5m2>(x, cols, how, block_scales);
    case Format::e2m1:
      return quantize_as<Format::e2m1>(x, cols, how, block_scales);
    default:
      return 1.0f;
  }
}

}  // namespace motley::kernels
