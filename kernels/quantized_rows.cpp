#include "kernels/quantized_rows.h"

#include <algorithm>
#include <functional>

#include "kernels/cpu/elements.h"
#include "kernels/parallel.h"
#include "kernels/pointwise.h"
#include "kernels/quantize.h"
#include "kernels/quantize_device.h"

namespace motley::kernels {
namespace {

constexpr int64_t kPieceValues = int64_t{1} << 14;  // that pay for waking a thread

Format format_of(DType dtype) {
  return dtype == DType::bf16 ? Format::bf16 : dtype == DType::f16 ? Format::fp16 : Format::fp32;
}

bool plain(const Quantization& how) { return how.scaling == Scaling::none; }

}  // namespace

bool sums_by_blocks(const NumericProfile& profile) {
  return profile.weight.scaling == Scaling::block128x128 || profile.weight.scaling == Scaling::block1x128 ||
         profile.activation.scaling == Scaling::block1x128;
}

std::string refusal_on_devices(const NumericProfile& profile) {
  if (profile.accumulation != Accumulation::fp32)
    return "the accumulation of Hopper's fp8 units is modelled on the CPU alone";
  if (!plain(profile.activation) && !on_every_device(profile.activation))
    return "activations in " + std::string(format_name(profile.activation.format)) +
           " with these scales are quantized on the CPU alone";
  return {};
}

float* QuantizedRows::Room::at_least(const Device& device, int64_t count) {
  if (!memory_ || count_ < count || device_ != device) {
    memory_ = allocate_on(device, static_cast<size_t>(count) * sizeof(float));
    device_ = device;
    count_ = count;
  }
  return data();
}

void QuantizedRows::assign(const void* x, int64_t rows, int64_t cols, const NumericProfile& profile,
                           const Device& device) {
  device_ = device;
  rows_ = rows;
  cols_ = cols;
  activation_ = profile.activation;
  const Scaling scaling = activation_.scaling;
  has_block_scales_ = sums_by_blocks(profile);
  has_factors_ = scaling == Scaling::tensor || scaling == Scaling::channel || scaling == Scaling::nv16;
  const int64_t blocks = has_block_scales_ ? (cols + 127) / 128 : 0;
  block_scales_.at_least(device, rows * blocks);
  if (scaling != Scaling::block1x128) fill_block_scales(rows * blocks);
  if (plain(activation_) && (activation_.format == Format::fp32 || activation_.format == format_of(profile.output))) {
    values_ = row_major(x, profile.output, rows, cols);
    return;
  }
  const void* values = floats_.at_least(device, rows * cols);
  factors_.at_least(device, rows);
  values_ = row_major(values, DType::f32, rows, cols);
  device.kind == DeviceKind::cpu ? assign_on_cpu(x, profile) : assign_on_device(x, profile);
}

void QuantizedRows::fill_block_scales(int64_t count) {
  if (device_.kind == DeviceKind::cpu) {
    std::fill_n(block_scales_.data(), count, 1.0f);
    return;
  }
  const std::vector<float> ones(static_cast<size_t>(count), 1.0f);
  copy_bytes(block_scales_.data(), device_, ones.data(), {}, ones.size() * sizeof(float));
}

void QuantizedRows::assign_on_cpu(const void* x, const NumericProfile& profile) {
  const int64_t cols = cols_, blocks = has_block_scales_ ? (cols + 127) / 128 : 0;
  visit_dtype(profile.output, [&]<class T>(T) {
    if constexpr (!std::is_same_v<T, double>) {
      const auto piece = [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          float* values = floats_.data() + r * cols;
          cpu::load(values, static_cast<const T*>(x) + r * cols, cols);
          factors_.data()[r] = quantize_activation(values, cols, activation_, block_scales_.data() + r * blocks);
        }
      };
      parallel_for(rows_, 1 + kPieceValues / (cols + 1), std::ref(piece));
    }
  });
}

void QuantizedRows::assign_on_device(const void* x, const NumericProfile& profile) {
  const int64_t count = rows_ * cols_;
  float* values = floats_.data();
  MOTLEY_RUN(device_, convert, values, DType::f32, x, profile.output, count);
  if (plain(activation_)) {
    MOTLEY_RUN(device_, round_values<float>, values, values, activation_.format, 1.0, count);
  } else {
    const QuantizeActivationsArgs args{values, factors_.data(), block_scales_.data(), rows_, cols_, activation_};
    MOTLEY_RUN(device_, quantize_activations, args);
  }
}

}  // namespace motley::kernels
