// Small models, requests and a driver shared by the tests of the decoding engine.
#pragma once

#include <bit>
#include <cmath>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tensor/engine.h"
#include "tests/tensor/devices.h"

namespace motley::test {

struct Model {
  TransformerConfig config;
  Parameters parameters;
};

/// Matrices are scaled up and norms moved off 1, so that next-token distributions are far from uniform.
inline Model make_model(const TransformerConfig& wanted, uint64_t seed) {
  Model model{wanted.resolved(), {}};
  model.parameters = Parameters::initialize(model.config, seed);
  kernels::RandomStream noise({seed, kernels::Purpose::init, 77});
  for (const std::string& name : model.parameters.names()) {
    Tensor& tensor = model.parameters.at(name);
    const bool matrix = tensor.shape().size() > 1;
    for (float& value : tensor.span<float>()) {
      value = matrix ? value * 3.0f : value + static_cast<float>(0.2 * noise.uniform());
    }
  }
  return model;
}

inline TransformerConfig grouped_tied() {
  TransformerConfig c;
  c.vocabulary = 11, c.layers = 2, c.width = 24, c.heads = 4, c.kv_heads = 2, c.head_dim = 6, c.ffn = 40;
  c.max_positions = 160;
  return c;
}
inline TransformerConfig odd_untied() {
  TransformerConfig c;
  c.vocabulary = 37, c.layers = 1, c.width = 40, c.heads = 5, c.kv_heads = 1, c.head_dim = 10, c.ffn = 33;
  c.qk_norm = true, c.tied_head = false, c.max_positions = 160;
  return c;
}
inline TransformerConfig even_normed() {
  TransformerConfig c;
  c.vocabulary = 19, c.layers = 3, c.width = 32, c.heads = 2, c.kv_heads = 2, c.qk_norm = true;
  c.max_positions = 160;
  return c;
}
/// For devices other than the CPU.
inline TransformerConfig smallest() {
  TransformerConfig c;
  c.vocabulary = 11, c.layers = 1, c.width = 16, c.heads = 2, c.kv_heads = 1, c.head_dim = 8, c.ffn = 20;
  c.qk_norm = true;
  c.max_positions = 40;
  return c;
}

inline kernels::NumericProfile plain_profile(const std::string& name) {
  kernels::NumericProfile p;
  p.name = name;
  p.output = name == "fp32" ? DType::f32 : name == "bf16" ? DType::bf16 : DType::f16;
  p.kv_cache = name == "fp32" ? kernels::Format::fp32 : name == "bf16" ? kernels::Format::bf16 : kernels::Format::fp16;
  p.weight.format = p.activation.format = p.kv_cache;
  return p;
}

inline std::shared_ptr<const SamplerWeights> sampler_weights(const Model& model, const kernels::NumericProfile& profile,
                                                             uint64_t version = 1, const Device& device = {}) {
  return std::make_shared<SamplerWeights>(model.config, model.parameters, profile, version, device);
}

inline GenerateRequest make_request(uint64_t id, int64_t prompt, int64_t max_new, int64_t vocabulary,
                                    kernels::SamplingRule rule, uint64_t seed = 5) {
  GenerateRequest request;
  request.id = id;
  request.max_new_tokens = max_new;
  request.rule = rule;
  request.key = {seed, kernels::Purpose::train, 1000 + id, 0};
  kernels::RandomStream stream({seed, kernels::Purpose::data, id});
  for (int64_t i = 0; i < prompt; ++i) {
    request.tokens.push_back(static_cast<int32_t>(stream.below(static_cast<uint64_t>(vocabulary))));
  }
  return request;
}

/// Seven requests whose prompts lie below, at and above page and tile boundaries.
inline std::vector<GenerateRequest> seven_requests(int64_t max_new, int64_t vocabulary, kernels::SamplingRule rule) {
  std::vector<GenerateRequest> requests;
  const int64_t lengths[] = {1, 3, 4, 16, 17, 33, 70};
  for (uint64_t i = 0; i < 7; ++i) requests.push_back(make_request(i + 1, lengths[i], max_new, vocabulary, rule));
  return requests;
}

/// Three, of which two share their prompt.
inline std::vector<GenerateRequest> three_requests(kernels::SamplingRule rule) {
  std::vector<GenerateRequest> all{make_request(1, 5, 3, 11, rule), make_request(2, 2, 4, 11, rule),
                                   make_request(3, 1, 3, 11, rule)};
  all[2].tokens = all[0].tokens;
  return all;
}

struct Finished {
  TokenRecords records;
  FinishReason finish = FinishReason::none;
  std::string error;
  bool operator==(const Finished&) const = default;
};

inline void collect(const std::vector<StepOutput>& outputs, std::map<uint64_t, Finished>& finished) {
  for (const StepOutput& output : outputs) {
    Finished& f = finished[output.id];
    f.records.append(output.records);
    f.finish = output.finish;
    f.error = output.error;
  }
}

inline std::map<uint64_t, Finished> drain(Engine& engine) {
  std::map<uint64_t, Finished> finished;
  while (!engine.idle()) collect(engine.step(), finished);
  return finished;
}

inline std::map<uint64_t, Finished> generate(std::shared_ptr<const SamplerWeights> weights, const EngineLimits& limits,
                                             const std::vector<GenerateRequest>& requests) {
  Engine engine(std::move(weights), limits);
  for (const GenerateRequest& request : requests) engine.submit(request);
  return drain(engine);
}

inline std::vector<int32_t> whole(const GenerateRequest& request, const TokenRecords& records) {
  std::vector<int32_t> tokens = request.tokens;
  tokens.insert(tokens.end(), records.tokens.begin(), records.tokens.end());
  return tokens;
}

inline std::vector<uint32_t> bits(std::span<const float> values) {
  std::vector<uint32_t> out;
  for (const float value : values) out.push_back(std::bit_cast<uint32_t>(value));
  return out;
}

/// The part of a score that belongs to the tokens drawn after `prompt` tokens.
inline std::vector<uint32_t> drawn_bits(const std::vector<float>& score, size_t prompt) {
  return bits(std::span<const float>(score).subspan(prompt - 1));
}

}  // namespace motley::test
