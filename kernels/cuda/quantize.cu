#include <stdexcept>

#include "kernels/cuda/gpu.h"
#include "kernels/cuda/lanes.h"
#include "kernels/quantize.h"
#include "kernels/quantize_block.h"
#include "kernels/quantize_device.h"

namespace motley::kernels::GPU_NAMESPACE {
namespace {

constexpr int kThreads = 128;
constexpr int64_t kPartialValues = 16 * kThreads;  // of one block of amax_kernel
constexpr int64_t kMostPartials = 1024;

/// A magnitude as bits, which order as the numbers do. An infinity counts as the largest float, NaN not at all.
GPU_DEVICE int32_t magnitude_bits(float x) { return std::bit_cast<int32_t>(block_range(&x, 1).amax); }

/// Of a block of the matrix, for all threads of the block of the device.
GPU_DEVICE float region_amax(const float* x, int64_t rows, int64_t cols, int64_t stride) {
  GPU_SHARED(int32_t, part, kMaxWarps);
  int32_t largest = 0;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = thread(); c < cols; c += threads()) {
      const int32_t bits = magnitude_bits(x[r * stride + c]);
      largest = bits > largest ? bits : largest;
    }
  }
  return std::bit_cast<float>(block_max(largest, part));
}

/// partials[block] of all the values.
GPU_KERNEL void amax_kernel(const float* values, int64_t count, float* partials) {
  GPU_SHARED(int32_t, part, kMaxWarps);
  int32_t largest = 0;
  for (int64_t i = block() * threads() + thread(); i < count; i += blocks() * threads()) {
    const int32_t bits = magnitude_bits(values[i]);
    largest = bits > largest ? bits : largest;
  }
  largest = block_max(largest, part);
  if (thread() == 0) partials[block()] = std::bit_cast<float>(largest);
}
GPU_KERNEL void tensor_scale_kernel(const float* partials, int64_t count, float shared_amax, Quantization how,
                                    float* scale) {
  const float found = region_amax(partials, 1, count, count);
  const float amax = shared_amax > 0.0f ? (shared_amax < kFloatMax ? shared_amax : kFloatMax) : found;
  if (thread() == 0) *scale = how.scaling == Scaling::nv16 ? nv_tensor_scale(amax) : fp32_scale(amax, how.format);
}

/// A matrix cut into regions of [rows, cols] that share a scale, one per block of the device, row-major.
struct Regions {
  int64_t rows, cols;
};
struct Region {
  int64_t row, col, rows, cols;
};
GPU_DEVICE Region region_of(const Regions& regions, int64_t rows, int64_t cols) {
  const int64_t across = cols == 0 ? 1 : pieces(cols, regions.cols);
  const int64_t row = block() / across * regions.rows, col = block() % across * regions.cols;
  return {row, col, rows - row < regions.rows ? rows - row : regions.rows,
          cols - col < regions.cols ? cols - col : regions.cols};
}

/// The codes of x[count] / scale, shared by the threads of the block; e2m1 in whole bytes.
template <Format F>
GPU_DEVICE void store_codes(uint8_t* codes, const float* x, int64_t count, float scale) {
  if constexpr (F == Format::e2m1) {
    for (int64_t c = 2 * thread(); c < count; c += 2 * threads()) {
      const uint32_t low = encode<F>(x[c] / scale), high = c + 1 < count ? encode<F>(x[c + 1] / scale) : 0;
      codes[c / 2] = static_cast<uint8_t>(low | high << 4);
    }
  } else {
    for (int64_t c = thread(); c < count; c += threads()) codes[c] = static_cast<uint8_t>(encode<F>(x[c] / scale));
  }
}

template <Format F>
GPU_KERNEL void quantize_kernel(QuantizeArgs a, Regions regions) {
  const Region region = region_of(regions, a.rows, a.cols);
  const float* x = a.values + region.row * a.cols + region.col;
  float scale;
  if (a.how.scaling == Scaling::tensor) {
    scale = a.scales[0];
  } else {
    scale = fp32_scale(region_amax(x, region.rows, region.cols, a.cols), F);
    if (thread() == 0 && (region.cols > 0 || a.how.scaling == Scaling::channel)) a.scales[block()] = scale;
  }
  constexpr int kPerByte = F == Format::e2m1 ? 2 : 1;  // a region begins in a whole byte
  const int64_t row_bytes = pieces(a.cols, kPerByte);
  for (int64_t r = 0; r < region.rows; ++r)
    store_codes<F>(a.codes + (region.row + r) * row_bytes + region.col / kPerByte, x + r * a.cols, region.cols, scale);
}

/// Block `index` of a row of 16-blocks, zeros beyond the row.
GPU_DEVICE void load_nv_block(float* out, const float* row, int64_t index, int64_t cols) {
  for (int64_t i = 0; i < kNvBlock; ++i) {
    const int64_t c = index * kNvBlock + i;
    out[i] = c < cols ? row[c] : 0.0f;
  }
}

/// One block of 16 per thread.
GPU_KERNEL void nv_quantize_kernel(QuantizeArgs a) {
  const int64_t across = pieces(a.cols, kNvBlock), index = block() * threads() + thread();
  if (index >= a.rows * across) return;
  const int64_t row = index / across, col = index % across;
  float x[kNvBlock];
  load_nv_block(x, a.values + row * a.cols, col, a.cols);
  const NvBlock encoded = nv_encode(x, a.scales[0], a.how.four_over_six);
  a.block_codes[index] = encoded.scale;
  const int64_t row_bytes = pieces(a.cols, 2), first = col * kNvBlock / 2;
  for (int64_t i = 0; i < kNvBlock / 2 && first + i < row_bytes; ++i) {
    const uint32_t low = encode<Format::e2m1>(encoded.elements[2 * i]);
    const uint32_t high = encode<Format::e2m1>(encoded.elements[2 * i + 1]);
    a.codes[row * row_bytes + first + i] = static_cast<uint8_t>(low | high << 4);
  }
}

/// A block of 32 values per warp: its scale, and the value of a lane times its inverse, which is exact.
template <Format F>
class MxBlock {
 public:
  GPU_DEVICE MxBlock(const float* values, int64_t rows, int64_t cols) {
    const int64_t across = pieces(cols, kMxBlock), warps = threads() / kWarp;
    index = block() * warps + thread() / kWarp;
    row = index / across;
    col = index % across * kMxBlock + thread() % kWarp;
    there = row < rows;
    inside = there && col < cols;
    x = inside ? values[row * cols + col] : 0.0f;
    BlockRange range = block_range(&x, 1);
    range.has_nan = any_of_warp(range.has_nan);
    for (int mask = kWarp / 2; mask > 0; mask /= 2) {
      const float other = shuffle_xor(range.amax, mask);
      range.amax = other > range.amax ? other : range.amax;
    }
    scale = mx_scale(range, F);  // 0xff is NaN
    x = scale == 0xff ? ue8m0_to_float(scale) : x * ue8m0_to_float(static_cast<uint8_t>(254 - scale));
  }
  int64_t index, row, col;
  float x;
  uint8_t scale;
  bool there, inside;  // the block, and this lane's value
};
int64_t mx_launches(int64_t rows, int64_t cols) { return pieces(rows * pieces(cols, kMxBlock), kThreads / kWarp); }

template <Format F>
GPU_KERNEL void mx_quantize_kernel(QuantizeArgs a) {
  const MxBlock<F> b(a.values, a.rows, a.cols);
  if (b.there && thread() % kWarp == 0) a.block_codes[b.index] = b.scale;
  uint32_t code = b.inside && b.scale != 0xff ? encode<F>(b.x) : 0;
  constexpr int kPerByte = F == Format::e2m1 ? 2 : 1;
  if constexpr (kPerByte == 2) code |= shuffle_xor(code, 1) << 4;  // of use to even columns
  if (b.inside && b.col % kPerByte == 0)
    a.codes[b.row * pieces(a.cols, kPerByte) + b.col / kPerByte] = static_cast<uint8_t>(code);
}
template <Format F>
GPU_KERNEL void mx_quantize_activations_kernel(QuantizeActivationsArgs a) {
  const MxBlock<F> b(a.x, a.rows, a.cols);
  if (b.inside) a.x[b.row * a.cols + b.col] = rounded<F>(b.x) * ue8m0_to_float(b.scale);
  if (b.inside && b.col == 0) a.factors[b.row] = 1.0f;
}

template <Format F>
GPU_KERNEL void quantize_activations_kernel(QuantizeActivationsArgs a, Regions regions) {
  const Region region = region_of(regions, a.rows, a.cols);
  float* x = a.x + region.row * a.cols + region.col;
  const bool unscaled = a.how.scaling == Scaling::none || a.how.scaling == Scaling::mx32;  // or a row of no mx blocks
  const float scale = unscaled ? 1.0f : fp32_scale(region_amax(x, 1, region.cols, a.cols), F);
  const bool blocked = a.how.scaling == Scaling::block1x128;
  if (thread() == 0) {
    if (blocked && region.cols > 0) a.block_scales[block()] = scale;
    if (region.col == 0) a.factors[region.row] = blocked ? 1.0f : scale;
  }
  for (int64_t c = thread(); c < region.cols; c += threads()) x[c] = rounded<F>(x[c] / scale);
}

/// One row per block of the device.
GPU_KERNEL void nv_quantize_activations_kernel(QuantizeActivationsArgs a) {
  float* row = a.x + block() * a.cols;
  const float tensor_scale = nv_tensor_scale(region_amax(row, 1, a.cols, a.cols));
  if (thread() == 0) a.factors[block()] = tensor_scale;
  for (int64_t index = thread(); index < pieces(a.cols, kNvBlock); index += threads()) {
    float x[kNvBlock];
    load_nv_block(x, row, index, a.cols);
    const NvBlock encoded = nv_encode(x, tensor_scale, a.how.four_over_six);
    const float scale = e4m3_to_float(encoded.scale);
    for (int64_t i = 0; i < kNvBlock && index * kNvBlock + i < a.cols; ++i)
      row[index * kNvBlock + i] = encoded.elements[i] * scale;
  }
}

void set_tensor_scale(const QuantizeArgs& args) {
  const int64_t count = args.shared_amax > 0.0f ? 0 : args.rows * args.cols;
  const int64_t wanted = pieces(count, kPartialValues), parts = wanted < kMostPartials ? wanted : kMostPartials;
  const Scratch<float> partials(parts);
  launch({"amax", parts, kThreads}, amax_kernel, args.values, count, partials.data());
  launch({"tensor_scale", 1, kThreads}, tensor_scale_kernel, partials.data(), parts, args.shared_amax, args.how,
         args.scales);
}

Regions regions_of(const Quantization& how, int64_t cols) {
  const int64_t whole = cols == 0 ? 1 : cols;  // a row without columns still has a scale
  switch (how.scaling) {
    case Scaling::block128x128:
      return {kFp8Block, kFp8Block};
    case Scaling::block1x128:
      return {1, kFp8Block};
    case Scaling::channel:
      return {1, whole};
    default:  // one scale for all: regions share the work, no more
      return {16, whole};
  }
}
int64_t region_count(const Regions& regions, const Quantization& how, int64_t rows, int64_t cols) {
  const int64_t across = cols == 0 && how.scaling != Scaling::block128x128 ? 1 : pieces(cols, regions.cols);
  return pieces(rows, regions.rows) * across;
}

/// Calls body<F>() for a format that quantizers round to.
template <class Body>
void visit_small_format(Format format, const Body& body) {
  if (format == Format::e4m3) return body.template operator()<Format::e4m3>();
  if (format == Format::e5m2) return body.template operator()<Format::e5m2>();
  body.template operator()<Format::e2m1>();
}

}  // namespace

void quantize(const QuantizeArgs& args) {
  check_quantization(args.how);
  if (args.how.scaling == Scaling::none) throw std::invalid_argument("quantize: a plain cast is convert's");
  const bool one_scale = args.how.scaling == Scaling::tensor || args.how.scaling == Scaling::nv16;
  if (one_scale) set_tensor_scale(args);
  if (args.how.scaling == Scaling::nv16) {
    const int64_t blocks = args.rows * pieces(args.cols, kNvBlock);
    launch({"nv_quantize", pieces(blocks, kThreads), kThreads}, nv_quantize_kernel, args);
    return;
  }
  const Regions regions = regions_of(args.how, args.cols);
  visit_small_format(args.how.format, [&]<Format F>() {
    if (args.how.scaling == Scaling::mx32)
      launch({"mx_quantize", mx_launches(args.rows, args.cols), kThreads}, mx_quantize_kernel<F>, args);
    else
      launch({"quantize", region_count(regions, args.how, args.rows, args.cols), kThreads}, quantize_kernel<F>, args,
             regions);
  });
}

void quantize_activations(const QuantizeActivationsArgs& args) {
  check_activation(args.how);
  const Scaling scaling = args.how.scaling;
  if (scaling == Scaling::nv16) {
    launch({"nv_quantize_activations", args.rows, kThreads}, nv_quantize_activations_kernel, args);
    return;
  }
  if (scaling == Scaling::mx32 && args.cols > 0) {
    visit_small_format(args.how.format, [&]<Format F>() {
      launch({"mx_quantize_activations", mx_launches(args.rows, args.cols), kThreads},
             mx_quantize_activations_kernel<F>, args);
    });
    return;
  }
  const Quantization how{args.how.format, scaling == Scaling::block1x128 ? scaling : Scaling::channel};
  const Regions regions = regions_of(how, args.cols);
  const Launch shape{"quantize_activations", region_count(regions, how, args.rows, args.cols), kThreads};
  const auto round_to = [&]<Format F>() { launch(shape, quantize_activations_kernel<F>, args, regions); };
  if (args.how.format == Format::fp32)
    round_to.template operator()<Format::fp32>();
  else if (args.how.format == Format::bf16)
    round_to.template operator()<Format::bf16>();
  else if (args.how.format == Format::fp16)
    round_to.template operator()<Format::fp16>();
  else
    visit_small_format(args.how.format, round_to);
}

}  // namespace motley::kernels::GPU_NAMESPACE
