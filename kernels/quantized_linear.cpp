#include "kernels/quantized_linear.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "kernels/hopper_fp8.h"
#include "kernels/philox.h"
#include "kernels/quantize.h"

namespace motley::kernels {
namespace {

uint64_t mix_bytes(uint64_t hash, const void* data, size_t bytes) {
  hash = mix(hash, bytes);
  const auto* at = static_cast<const char*>(data);
  for (; bytes >= 8; bytes -= 8, at += 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    hash = mix(hash, word);
  }
  uint64_t rest = 0;
  if (bytes > 0) std::memcpy(&rest, at, bytes);
  return mix(hash, rest);
}

/// Of everything that the values depend on, the encoder's choices included.
uint64_t fingerprint_of(const QuantizedMatrix& m) {
  uint64_t hash = mix(static_cast<uint64_t>(m.rows), static_cast<uint64_t>(m.cols));
  hash = mix(hash, static_cast<uint64_t>(m.how.format) << 16 | static_cast<uint64_t>(m.how.scaling) << 8 |
                       static_cast<uint64_t>(m.how.four_over_six));
  hash = mix_bytes(hash, m.codes.data(), m.codes.size());
  hash = mix_bytes(hash, m.block_codes.data(), m.block_codes.size());
  return mix_bytes(hash, m.scales.data(), m.scales.size() * sizeof(float));
}

/// The limited accumulation is that of fp8 operands; 32 products enter a step, so that tiles are whole steps.
void check_accumulation(const NumericProfile& profile) {
  if (profile.accumulation == Accumulation::fp32) return;
  const auto fp8 = [](const Quantization& how) {
    return (how.format == Format::e4m3 || how.format == Format::e5m2) && how.scaling != Scaling::mx32;
  };
  if (!fp8(profile.weight) || !fp8(profile.activation) || profile.k_tile % kHopperStep != 0) {
    throw std::invalid_argument(
        "QuantizedLinear: the accumulation of Hopper's fp8 units takes e4m3 or e5m2 operands without mx scales, and a "
        "reduction tile of whole steps of 32");
  }
}

}  // namespace

QuantizedLinear::QuantizedLinear(std::span<const float> weights, int64_t outputs, int64_t inputs,
                                 const NumericProfile& profile, float shared_amax, const Device& device)
    : QuantizedLinear(quantize(weights, outputs, inputs, profile.weight, shared_amax), profile, device) {}

QuantizedLinear::QuantizedLinear(QuantizedMatrix weight, const NumericProfile& profile, const Device& device)
    : profile_(profile), body_(product_body(profile, device)), outputs_(weight.rows), inputs_(weight.cols) {
  if (profile.output == DType::f64) throw std::invalid_argument("QuantizedLinear: no fp64 output");
  check_activation(profile.activation);
  check_accumulation(profile);
  if (weight.how != profile.weight)
    throw std::invalid_argument("QuantizedLinear: the weight is in another format than the profile's");
  check_sizes(weight);
  fingerprint_ = fingerprint_of(weight);
  packed_ = {pack(weight), device};
  vendor_ = {weight, profile, device};
  std::vector<float> block_scales;
  switch (profile.weight.scaling) {
    case Scaling::tensor:
    case Scaling::nv16:
      alpha_ = weight.scales[0];
      break;
    case Scaling::channel:
      row_scales_ = {device, weight.scales};
      break;
    case Scaling::block1x128:
      block_rows_ = 1;
      [[fallthrough]];
    case Scaling::block128x128:
      block_scales = std::move(weight.scales);
      break;
    default:
      break;
  }
  if (sums_by_blocks(profile) && block_scales.empty()) {
    block_rows_ = std::max<int64_t>(1, outputs_);
    block_scales.assign(static_cast<size_t>((inputs_ + 127) / 128), 1.0f);
  }
  if (!block_scales.empty()) block_scales_ = {device, block_scales};
}

QuantizedLinear::Scales::Scales(const Device& device, const std::vector<float>& values)
    : data(copied_to(device, values.data(), values.size())), count(static_cast<int64_t>(values.size())) {}

std::vector<float> QuantizedLinear::Scales::on_host(const Device& device) const {
  std::vector<float> values(static_cast<size_t>(count));
  copy_bytes(values.data(), {}, data.get(), device, values.size() * sizeof(float));
  return values;
}

QuantizedMatrix QuantizedLinear::weight() const {
  QuantizedMatrix weight = packed_.unpack(profile_.weight);
  switch (profile_.weight.scaling) {
    case Scaling::tensor:
    case Scaling::nv16:
      weight.scales = {alpha_};
      break;
    case Scaling::channel:
      weight.scales = row_scales_.on_host(packed_.device());
      break;
    case Scaling::block1x128:
    case Scaling::block128x128:
      weight.scales = block_scales_.on_host(packed_.device());
      break;
    default:
      break;
  }
  return weight;
}

void QuantizedLinear::forward(const QuantizedRows& x, void* y, const LinearEpilogue& epilogue) const {
  const ConstMatrix& values = x.values();
  const bool blocks = sums_by_blocks(profile_);
  if (values.cols != inputs_ || x.activation() != profile_.activation || x.has_block_scales() != blocks ||
      x.body() != body_ || x.device() != packed_.device()) {
    throw std::invalid_argument("QuantizedLinear: the rows were quantized for another product");
  }
  MatmulArgs args;
  args.a = values;
  packed_.put_into(args);
  args.c = row_major(y, profile_.output, values.rows, outputs_);
  args.k_tile = profile_.k_tile;
  args.alpha = alpha_;
  args.row_factors = x.factors();
  args.column_factors = row_scales_.data.get();
  if (blocks) {
    args.a_scales = x.block_scales();
    args.b_scales = block_scales_.data.get();
    args.b_scale_rows = block_rows_;
    args.k_tile = 128;
  }
  if (epilogue.gate != nullptr) args.gate = row_major(epilogue.gate, profile_.output, values.rows, outputs_);
  if (epilogue.residual != nullptr)
    args.residual = row_major(epilogue.residual, profile_.output, values.rows, outputs_);
  if (vendor_.forward(x, args)) return;
  compute_product(body_, packed_.device(), args);
}

void QuantizedLinear::forward(const void* x, int64_t rows, void* y) const {
  QuantizedRows quantized;
  quantized.assign(x, rows, inputs_, profile_, packed_.device());
  forward(quantized, y);
}

}  // namespace motley::kernels
