#include "algos/mismatch/mixed_pass.h"

#include <stdexcept>

namespace motley::algos::mismatch {
namespace {

constexpr const char* kEmbedding = "model.embed_tokens.weight";

/// The values rounded to `type`, as floats.
Tensor rounded(const Tensor& x, DType type) { return type == DType::f32 ? x : cast(cast(x, type), DType::f32); }

Operation operation_of(Projection projection) {
  switch (projection) {
    case Projection::q:
      return Operation::q;
    case Projection::k:
      return Operation::k;
    case Projection::v:
      return Operation::v;
    case Projection::o:
      return Operation::o;
    case Projection::gate:
      return Operation::gate;
    case Projection::up:
      return Operation::up;
    default:
      return Operation::down;
  }
}

class MixedContext final : public ForwardContext {
 public:
  MixedContext(MixedWeights& weights, const Assignment& assignment, const RopeTable& table,
               std::span<const int32_t> starts)
      : weights_(weights), assignment_(assignment), table_(table), starts_(starts) {}

  Tensor project(const Tensor& x, int64_t layer, Projection projection) override {
    const Operation operation = operation_of(projection);
    const SamplerWeights& products =
        weights_.products(assignment_.sampler(operation, layer), assignment_.sampler(Operation::reduction_order, layer),
                          assignment_.sampler(Operation::accumulation, layer));
    const kernels::QuantizedLinear& linear = products.projection(layer, projection);
    Tensor y = Tensor::empty({x.dim(0), linear.outputs()}, DType::f32);
    linear.forward(x.raw(), x.dim(0), y.raw());
    return result_of(operation, layer, y);
  }
  Tensor project_gated(const Tensor& x, int64_t layer, Projection projection, const Tensor& gate) override {
    return result_of(Operation::silu, layer, silu_mul(gate, project(x, layer, projection)));
  }
  Tensor project_added(const Tensor& x, int64_t layer, Projection projection, const Tensor& residual) override {
    return result_of(Operation::residual, layer, add(residual, project(x, layer, projection)));
  }
  /// Asked for the embedding and for gains.
  Tensor parameter(const std::string& name) override {
    const Operation operation = name == kEmbedding ? Operation::embedding : Operation::norm;
    return weights_.parameter(name, assignment_.sampler(operation, layer_of(name)));
  }
  Tensor norm(const Tensor& x, const std::string& gain, double eps) override {
    return result_of(Operation::norm, layer_of(gain), rms_norm(x, parameter(gain), eps));
  }
  Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, int64_t layer) override {
    const kernels::NumericProfile& cache = profile_of(Operation::kv_cache, layer);
    const auto cached = [&](const Tensor& x) {
      return kv_rounding(cache) == kernels::Format::fp32 ? x : round_values(x, cache.kv_cache, cache.kv_scale);
    };
    const auto rotated = [&](const Tensor& x) { return result_of(Operation::rope, layer, x); };
    const Tensor y = attention(rotated(q), cached(rotated(k)), cached(v), weights_.config().heads,
                               weights_.config().kv_heads, starts_);
    return result_of(Operation::attention, layer, y);
  }
  const RopeTable& rope_table() override { return table_; }

 private:
  const kernels::NumericProfile& profile_of(Operation operation, int64_t layer) const {
    return weights_.profile(assignment_.sampler(operation, layer));
  }
  Tensor result_of(Operation operation, int64_t layer, const Tensor& y) const {
    return rounded(y, profile_of(operation, layer).output);
  }
  /// model.layers.<layer>.rest, or the place outside the layers.
  int64_t layer_of(const std::string& name) const {
    static const std::string prefix = "model.layers.";
    return name.starts_with(prefix) ? std::stoll(name.substr(prefix.size())) : assignment_.layers();
  }

  MixedWeights& weights_;
  const Assignment& assignment_;
  const RopeTable& table_;
  std::span<const int32_t> starts_;
};

}  // namespace

MixedWeights::MixedWeights(const TransformerConfig& config, const Parameters& masters, kernels::NumericProfile sampler,
                           kernels::NumericProfile trainer)
    : config_(config.resolved()), masters_(masters), sampler_(std::move(sampler)), trainer_(std::move(trainer)) {
  for (const kernels::NumericProfile* profile : {&sampler_, &trainer_}) {
    if (profile->output != DType::f64) continue;
    throw std::invalid_argument("profile " + profile->name + ": an engine computes in float, not in fp64");
  }
}

const SamplerWeights& MixedWeights::products(bool formats, bool order, bool accumulation) {
  std::unique_ptr<const SamplerWeights>& made = products_[(formats ? 4 : 0) + (order ? 2 : 0) + (accumulation ? 1 : 0)];
  if (!made) {
    made = std::make_unique<const SamplerWeights>(
        config_, masters_, product_profile(profile(formats), profile(order), profile(accumulation)), 0);
  }
  return *made;
}

const Tensor& MixedWeights::parameter(const std::string& name, bool sampler) {
  Tensor& made = parameters_[{name, sampler}];
  if (!made.defined()) made = rounded(cast(masters_.at(name), DType::f32), profile(sampler).output);
  return made;
}

Tensor mixed_hidden(MixedWeights& weights, const Assignment& assignment, const RopeTable& table,
                    const PackedSequences& sequences) {
  const NoGrad no_grad;
  MixedContext context(weights, assignment, table, sequences.starts);
  return transformer_hidden(weights.config(), context, sequences.ids, sequences.positions);
}

const Tensor& mixed_head(MixedWeights& weights, const Assignment& assignment) {
  const NoGrad no_grad;
  return weights.parameter(head_weight_name(weights.config()),
                           assignment.sampler(Operation::head, assignment.layers()));
}

}  // namespace motley::algos::mismatch
