#include <algorithm>
#include <cstring>

#include "kernels/device_buffer.h"
#include "kernels/device_stream.h"
#include "tensor/engine.h"

namespace motley {
namespace {

constexpr int64_t kProjectionsPerLayer = std::size(kProjections);

/// The projections that a serving engine fuses into one matrix, and which therefore share one tensor scale.
std::vector<Projection> fused_with(Projection projection) {
  switch (projection) {
    case Projection::q:
    case Projection::k:
    case Projection::v:
      return {Projection::q, Projection::k, Projection::v};
    case Projection::gate:
    case Projection::up:
      return {Projection::gate, Projection::up};
    default:
      return {projection};
  }
}

/// Of an image of so many bytes.
std::vector<WeightPart> parts_of_size(const TransformerConfig& config, const kernels::NumericProfile& profile,
                                      size_t bytes) {
  std::vector<WeightPart> parts = weight_parts(config, profile);
  if (bytes != image_bytes(parts)) {
    throw std::invalid_argument("weights: an image of " + std::to_string(bytes) + " bytes; this model has " +
                                std::to_string(image_bytes(parts)) + " in " + profile.name);
  }
  return parts;
}

/// What write_matrix wrote. A memcpy each: nothing in an image is aligned.
kernels::QuantizedMatrix read_matrix(const WeightPart& part, const kernels::Quantization& how,
                                     std::span<const std::byte> image) {
  kernels::QuantizedMatrix matrix;
  matrix.how = how;
  matrix.rows = part.shape[0];
  matrix.cols = part.shape[1];
  const kernels::QuantizedSizes sizes = kernels::quantized_sizes(how, matrix.rows, matrix.cols);
  const std::byte* at = image.data() + part.offset;
  const auto take = [&at](auto& values, size_t count) {
    values.resize(count);
    const size_t bytes = count * sizeof(values[0]);
    if (bytes != 0) std::memcpy(values.data(), at, bytes);
    at += bytes;
  };
  take(matrix.codes, sizes.codes);
  take(matrix.block_codes, sizes.block_codes);
  take(matrix.scales, sizes.scales);
  return matrix;
}

void write_matrix(const kernels::QuantizedMatrix& matrix, std::byte* at) {
  const auto put = [&at](const auto& values) {
    const size_t bytes = values.size() * sizeof(values[0]);
    if (bytes != 0) std::memcpy(at, values.data(), bytes);
    at += bytes;
  };
  put(matrix.codes);
  put(matrix.block_codes);
  put(matrix.scales);
}

}  // namespace

SamplerWeights::SamplerWeights(const TransformerConfig& config, const kernels::NumericProfile& profile,
                               uint64_t version)
    : config_(config.resolved()), profile_(profile), version_(version) {
  MOTLEY_CHECK(profile.output != DType::f64, "SamplerWeights",
               "an engine computes in float: output fp64 has no sampler");
  projections_.reserve(static_cast<size_t>(config_.layers * kProjectionsPerLayer));
}

SamplerWeights::SamplerWeights(const TransformerConfig& config, const Parameters& masters,
                               const kernels::NumericProfile& profile, uint64_t version, const Device& device)
    : SamplerWeights(config, profile, version) {
  const NoGrad no_grad;
  const kernels::Scaling scaling = profile_.weight.scaling;
  const bool one_scale = scaling == kernels::Scaling::tensor || scaling == kernels::Scaling::nv16;
  for (int64_t layer = 0; layer < config_.layers; ++layer) {
    std::map<Projection, Tensor> matrices;
    for (const Projection p : kProjections)
      matrices[p] = cast(masters.at(projection_name(layer, p)).to(Device{}), DType::f32);
    std::map<Projection, float> largest;
    for (const Projection p : kProjections) {
      largest[p] = one_scale ? kernels::largest_magnitude(matrices[p].span<float>()) : 0.0f;
    }
    for (const Projection p : kProjections) {
      float amax = 0.0f;
      for (const Projection other : fused_with(p)) amax = std::max(amax, largest[other]);
      const Tensor& matrix = matrices[p];
      add_projection(projection_name(layer, p),
                     {matrix.span<float>(), matrix.dim(0), matrix.dim(1), profile_, amax, device});
    }
  }
  for (const std::string& name : masters.names())
    if (!fingerprints_.contains(name))
      add_parameter(name, cast(masters.at(name).to(Device{}), profile_.output), device);
  kernels::finish_stream(device);  // engines have streams of their own
}

SamplerWeights::SamplerWeights(const TransformerConfig& config, const kernels::NumericProfile& profile,
                               uint64_t version, const Device& device, std::span<const std::byte> image)
    : SamplerWeights(config, profile, version) {
  const NoGrad no_grad;
  std::map<std::string, WeightPart> parts;
  for (WeightPart& part : parts_of_size(config_, profile_, image.size())) parts.emplace(part.name, std::move(part));
  for (int64_t layer = 0; layer < config_.layers; ++layer) {
    for (const Projection p : kProjections) {
      const WeightPart& part = parts.at(projection_name(layer, p));
      add_projection(part.name, {read_matrix(part, profile_.weight, image), profile_, device});
    }
  }
  for (const auto& [name, part] : parts) {
    if (part.kind != WeightKind::plain) continue;
    const Tensor parameter = Tensor::empty(part.shape, profile_.output);
    std::memcpy(parameter.raw(), image.data() + part.offset, part.bytes);
    add_parameter(name, parameter, device);
  }
  kernels::finish_stream(device);
}

void SamplerWeights::add_projection(const std::string& name, kernels::QuantizedLinear linear) {
  fingerprints_[name] = linear.fingerprint();
  projections_.push_back(std::move(linear));
}

void SamplerWeights::add_parameter(const std::string& name, const Tensor& on_host, const Device& device) {
  fingerprints_[name] = fingerprint(on_host);
  // A copy even when a master already has the type: the learner goes on changing its masters in place.
  parameters_[name] = on_host.clone(device);
  if (name != head_weight_name(config_)) return;
  const auto* head = static_cast<const void*>(on_host.raw());
  packed_head_ = {pack(kernels::row_major(head, on_host.dtype(), on_host.dim(0), on_host.dim(1))), device};
}

void SamplerWeights::write_image(std::span<std::byte> image) const {
  std::map<std::string, const kernels::QuantizedLinear*> linears;
  for (int64_t layer = 0; layer < config_.layers; ++layer)
    for (const Projection p : kProjections) linears[projection_name(layer, p)] = &projection(layer, p);
  for (const WeightPart& part : parts_of_size(config_, profile_, image.size())) {
    if (part.kind == WeightKind::quantized) {
      write_matrix(linears.at(part.name)->weight(), image.data() + part.offset);
    } else {
      const Tensor& tensor = parameter(part.name);
      kernels::copy_bytes(image.data() + part.offset, {}, tensor.raw(), tensor.device(), part.bytes);
    }
  }
}

const kernels::QuantizedLinear& SamplerWeights::projection(int64_t layer, Projection projection) const {
  return projections_[static_cast<size_t>(layer * kProjectionsPerLayer + static_cast<int64_t>(projection))];
}

const Tensor& SamplerWeights::parameter(const std::string& name) const {
  const auto found = parameters_.find(name);
  MOTLEY_CHECK(found != parameters_.end(), "parameter", "no tensor named " + name);
  return found->second;
}

const Tensor& SamplerWeights::head_weight() const { return parameter(head_weight_name(config_)); }

}  // namespace motley
