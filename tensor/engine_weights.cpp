#include <algorithm>
#include <set>

#include "kernels/device_stream.h"
#include "tensor/engine.h"

namespace motley {
namespace {

constexpr Projection kProjections[] = {Projection::q,    Projection::k,  Projection::v,   Projection::o,
                                       Projection::gate, Projection::up, Projection::down};
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

}  // namespace

SamplerWeights::SamplerWeights(const TransformerConfig& config, const Parameters& masters,
                               const kernels::NumericProfile& profile, uint64_t version, const Device& device)
    : config_(config.resolved()), profile_(profile), version_(version) {
  MOTLEY_CHECK(profile.output != DType::f64, "SamplerWeights",
               "an engine computes in float: output fp64 has no sampler");
  const NoGrad no_grad;
  const kernels::Scaling scaling = profile_.weight.scaling;
  const bool one_scale = scaling == kernels::Scaling::tensor || scaling == kernels::Scaling::nv16;
  std::set<std::string> quantized;
  projections_.reserve(static_cast<size_t>(config_.layers * kProjectionsPerLayer));
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
      projections_.emplace_back(matrix.span<float>(), matrix.dim(0), matrix.dim(1), profile_, amax, device);
      const std::string name = projection_name(layer, p);
      fingerprints_[name] = projections_.back().fingerprint();
      quantized.insert(name);
    }
  }
  for (const std::string& name : masters.names()) {
    if (quantized.contains(name)) continue;
    // A copy even when the master already has the type: the learner goes on changing its masters in place.
    const Tensor parameter = cast(masters.at(name).to(Device{}), profile_.output);
    fingerprints_[name] = fingerprint(parameter);
    parameters_[name] = parameter.clone(device);
    if (name != head_weight_name(config_)) continue;
    const auto* head = static_cast<const void*>(parameter.raw());
    packed_head_ = {pack(kernels::row_major(head, parameter.dtype(), parameter.dim(0), parameter.dim(1))), device};
  }
  kernels::finish_stream(device);  // engines have streams of their own
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
