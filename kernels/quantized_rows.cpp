#include "kernels/quantized_rows.h"

#include <algorithm>
#include <functional>

#include "kernels/cpu/elements.h"
#include "kernels/device_memory.h"
#include "kernels/parallel.h"
#include "kernels/pointwise.h"
#include "kernels/quantize.h"
#include "kernels/quantize_device.h"
#include "kernels/vendor.h"
#include "kernels/vendor_scales.h"

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

VendorProduct vendor_product_of_rows(const NumericProfile& profile, const Device& device) {
  if (profile.invariant || device.kind != DeviceKind::cuda) return VendorProduct::none;
  select_device(device);
  const VendorProduct product = vendor_product(profile, cuda::compute_capability()).product;
  const bool codes = product == VendorProduct::fp8 || product == VendorProduct::fp8_blocks;
  return product == VendorProduct::plain || (codes && !plain(profile.activation)) ? product : VendorProduct::none;
}

bool QuantizedRows::Room::hold(const Device& device, int64_t count, int64_t element_bytes) {
  const int64_t wanted = count * element_bytes;
  if (memory_ && bytes_ >= wanted && device_ == device) return false;
  memory_ = allocate_on(device, static_cast<size_t>(wanted));
  device_ = device;
  bytes_ = wanted;
  return true;
}

void QuantizedRows::assign(const void* x, int64_t rows, int64_t cols, const NumericProfile& profile,
                           const Device& device) {
  device_ = device;
  body_ = product_body(profile, device);
  rows_ = rows;
  cols_ = cols;
  activation_ = profile.activation;
  const Scaling scaling = activation_.scaling;
  has_block_scales_ = sums_by_blocks(profile);
  own_block_scales_ = scaling == Scaling::block1x128;
  has_factors_ = scaling == Scaling::tensor || scaling == Scaling::channel || scaling == Scaling::nv16;
  if (has_block_scales_) hold_block_scales();
  // Where x has the activation format, its type is that of the rows on matrix units too.
  if (plain(activation_) && (activation_.format == Format::fp32 || activation_.format == format_of(profile.output))) {
    values_ = row_major(x, profile.output, rows, cols);
    return;
  }
  factors_.hold(device, rows, sizeof(float));
  device.kind == DeviceKind::cpu ? assign_on_cpu(x, profile) : assign_on_device(x, profile);
}

void QuantizedRows::hold_block_scales() {
  const int64_t count = rows_ * ((cols_ + 127) / 128);
  if (own_block_scales_) {
    block_scales_.hold(device_, count, sizeof(float));
    return;
  }
  if (!ones_.hold(device_, count, sizeof(float))) return;
  const std::vector<float> ones(static_cast<size_t>(count), 1.0f);
  copy_bytes(ones_.data(), device_, ones.data(), {}, ones.size() * sizeof(float));
}

void QuantizedRows::assign_on_cpu(const void* x, const NumericProfile& profile) {
  const int64_t cols = cols_, blocks = own_block_scales_ ? (cols + 127) / 128 : 0;
  floats_.hold(device_, rows_ * cols, sizeof(float));
  visit_dtype(profile.output, [&]<class T>(T) {
    if constexpr (!std::is_same_v<T, double>) {
      const auto piece = [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          float* values = floats_.floats() + r * cols;
          cpu::load(values, static_cast<const T*>(x) + r * cols, cols);
          factors_.floats()[r] = quantize_activation(values, cols, activation_, block_scales_.floats() + r * blocks);
        }
      };
      parallel_for(rows_, 1 + kPieceValues / (cols + 1), std::ref(piece));
    }
  });
  read_from(floats_, DType::f32);
}

void QuantizedRows::assign_on_device(const void* x, const NumericProfile& profile) {
  const int64_t count = rows_ * cols_;
  const bool units = body_ == ProductBody::matrix_units;
  const DType halves = unit_rows(profile);
  if (units) halves_.hold(device_, count, 2);
  if (units && plain(activation_) && activation_.format == format_of(halves)) {
    MOTLEY_RUN(device_, convert, halves_.data(), halves, x, profile.output, count);
    return read_from(halves_, halves);
  }
  floats_.hold(device_, count, sizeof(float));
  float* values = floats_.floats();
  MOTLEY_RUN(device_, convert, values, DType::f32, x, profile.output, count);
  const VendorProduct vendor = vendor_product_of_rows(profile, device_);
  if (vendor == VendorProduct::fp8 || vendor == VendorProduct::fp8_blocks) make_codes(vendor);
  const QuantizeActivationsArgs args{values, factors_.floats(), block_scales_.floats(), rows_, cols_, activation_};
  MOTLEY_RUN(device_, quantize_activations, args);
  if (!units) return read_from(floats_, DType::f32);
  MOTLEY_RUN(device_, convert, halves_.data(), halves, values, DType::f32, count);
  read_from(halves_, halves);
}

void QuantizedRows::make_codes(VendorProduct product) {
  const bool blocks = product == VendorProduct::fp8_blocks;
  const int64_t count = blocks ? (cols_ + 127) / 128 : 1, padded = blocks ? (rows_ + 3) / 4 * 4 : rows_;
  code_room_.hold(device_, padded * cols_, 1);
  code_scales_.hold(device_, rows_ * count, sizeof(float));
  auto* const codes = static_cast<uint8_t*>(code_room_.data());
  const Quantization how{activation_.format, blocks ? Scaling::block1x128 : Scaling::channel};
  const QuantizeArgs args{codes, nullptr, code_scales_.floats(), floats_.floats(), rows_, cols_, how, 0.0f};
  MOTLEY_RUN(device_, quantize, args);
  if (blocks) {
    placed_scales_.hold(device_, row_scale_place(0, count, rows_), sizeof(float));
    MOTLEY_RUN(device_, place_row_scales, placed_scales_.floats(), code_scales_.floats(), rows_, count);
  }
  codes_ = {codes, blocks ? placed_scales_.data() : nullptr, rows_, cols_, activation_.format};
}

void QuantizedRows::read_from(const Room& room, DType dtype) {
  values_ = row_major(static_cast<const void*>(room.data()), dtype, rows_, cols_);
}

}  // namespace motley::kernels
