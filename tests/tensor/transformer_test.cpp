#include "tensor/transformer.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "kernels/parallel.h"
#include "tensor/optimizer.h"
#include "tests/tensor/tiny_model.h"

using namespace motley;
using namespace motley::test;
using kernels::Format;
using Values = std::vector<double>;

namespace {

const std::vector<DType> kTrainerTypes{DType::f32, DType::bf16, DType::f16};
std::vector<DType> trainer_types(const Device& device) { return sized(device, kTrainerTypes, {DType::bf16}); }

Tensor hidden_states(const TransformerConfig& config, const Parameters& parameters,
                     const kernels::NumericProfile& profile, std::span<const std::vector<int32_t>> sequences) {
  const NoGrad scoring;
  const RopeTable table(config.max_positions, config.head_dim, config.rope_theta,
                        kernels::compute_dtype(profile.output), parameters.device());
  TrainerContext context(config, parameters, profile, table);
  return trainer_hidden(config, context, packed(sequences));
}

Values rows_of(const Tensor& x, size_t begin, size_t end) {
  const Values all = x.to_doubles();
  const auto cols = static_cast<size_t>(x.dim(1));
  return {all.begin() + static_cast<std::ptrdiff_t>(begin * cols),
          all.begin() + static_cast<std::ptrdiff_t>(end * cols)};
}

/// The variants that a test goes through: on other devices than the CPU two that differ in everything.
std::vector<Variant> variants(const Device& device) {
  return sized<std::vector<Variant>>(device, {std::begin(kVariants), std::end(kVariants)},
                                     {{false, true}, {true, false}});
}

/// Weights large enough that attention is far from uniform.
Parameters lively_parameters(const TransformerConfig& config, DType dtype, const Device& device = {}) {
  Parameters parameters = Parameters::initialize(config, 3, DType::f64);
  Parameters result = Parameters::zeros(config, dtype);
  uint64_t seed = 500;
  for (const std::string& name : parameters.names()) {
    const Tensor& tensor = parameters.at(name);
    const bool gain = tensor.shape().size() == 1;
    const Tensor noise = normals(tensor.shape(), ++seed, DType::f64, gain ? 0.2 : 0.0);
    Values values = tensor.to_doubles(), more = noise.to_doubles();
    for (size_t i = 0; i < values.size(); ++i) values[i] = gain ? values[i] + more[i] : 1.5 * values[i];
    // Rounded to bf16, so that masters of every type agree.
    result.at(name) =
        cast(cast(Tensor::from(std::span<const double>(values), tensor.shape(), DType::f32), DType::bf16), dtype);
  }
  return result.clone(device);
}

}  // namespace

TEST_CASE("the gradient of every parameter agrees with finite differences", "[device]") {
  const Device device = every_device();
  INFO(kernels::device_name(device));
  for (const Variant& variant : variants(device)) {
    const TransformerConfig config = tiny_model(variant);
    const Parameters parameters = lively_parameters(config, DType::f64);
    const auto profile = plain_profile(DType::f64);
    const std::vector<std::vector<int32_t>> sequences{{3, 1, 4, 1, 5}, {9, 2}, {6, 5, 3}};
    Parameters there = parameters.clone(device);
    there.set_requires_grad(true);
    const double loss = trainer_pass(config, there, profile, sequences);
    const NoGrad values_only;
    CHECK(trainer_pass(config, parameters, profile, sequences) == Approx(loss).epsilon(1e-13));
    for (const std::string& name : parameters.names()) {
      INFO(name << (variant.qk_norm ? ", QK-norm" : "") << (variant.tied_head ? ", tied" : ", untied"));
      const Values analytic = there.at(name).grad().to_doubles();
      // The differences are the CPU's. Of every element once; a device's gradient is looked at in some of them.
      const auto stride = sized<size_t>(device, 1, 7);
      double worst = 0.0, largest = 0.0;
      for (size_t i = 0; i < analytic.size(); i += stride) {
        double& element = parameters.at(name).data<double>()[i];
        const double kept = element;
        element = kept + kStep;
        const double above = trainer_pass(config, parameters, profile, sequences);
        element = kept - kStep;
        const double below = trainer_pass(config, parameters, profile, sequences);
        element = kept;
        worst = std::max(worst, std::abs((above - below) / (2.0 * kStep) - analytic[i]));
        largest = std::max(largest, std::abs(analytic[i]));
      }
      CHECK(largest > 1e-3);
      // The loss is of order 20, its third derivatives of order 100: see kStep.
      CHECK(worst < 1e-7 * std::max(1.0, largest));
    }
  }
}

TEST_CASE("gradients of the low-precision trainers are close to those in float64", "[device]") {
  const Device device = every_device();
  INFO(kernels::device_name(device));
  // Some 60 roundings lie between the loss and the first layer's weights, half an ulp each (2^-9 for bf16, 2^-12 for
  // fp16, 2^-25 for fp32). Measured: at most 0.02, 0.003 and 9e-7, half of these bounds or less.
  const std::pair<DType, double> bounds[] = {
      {DType::f32, 60 * 0x1p-25}, {DType::f16, 60 * 0x1p-12}, {DType::bf16, 60 * 0x1p-9}};
  for (const Variant& variant : variants(device)) {
    const TransformerConfig config = tiny_model(variant);
    const auto gradients = [&](DType master, DType output) {
      Parameters parameters = lively_parameters(config, master, device);
      parameters.set_requires_grad(true);
      trainer_pass(config, parameters, plain_profile(output), tiny_sequences());
      return all_gradients(parameters);
    };
    const Values exact = gradients(DType::f64, DType::f64);
    // fp32 masters cast up: the masters are the same numbers, only the gradient is rounded to fp32 at the end.
    CHECK(relative_error(gradients(DType::f32, DType::f64), exact) < 0x1p-24);
    for (const auto& [output, bound] : bounds) {
      INFO(kernels::dtype_name(output));
      CHECK(relative_error(gradients(DType::f32, output), exact) < bound);
    }
  }
}

// Scenario 9. The order of sequences is kept, so each weight's chain over tokens goes on where it stopped.
TEST_CASE("splitting a batch into micro-batches changes no bit of any gradient", "[device]") {
  const Device device = every_device();
  INFO(kernels::device_name(device));
  for (const Variant& variant : variants(device)) {
    const TransformerConfig config = tiny_model(variant);
    for (const DType dtype : trainer_types(device)) {
      auto sequences = tiny_sequences();
      sequences.resize(sized<size_t>(device, 7, 3));
      const auto gradients = [&](std::vector<size_t> cuts) {
        Parameters parameters = lively_parameters(config, DType::f32, device);
        parameters.set_requires_grad(true);
        size_t begin = 0;
        cuts.push_back(sequences.size());
        for (const size_t end : cuts) {
          trainer_pass(config, parameters, plain_profile(dtype), std::span(sequences).subspan(begin, end - begin));
          begin = end;
        }
        return all_gradients(parameters);
      };
      INFO(kernels::dtype_name(dtype) << (variant.qk_norm ? ", QK-norm" : "")
                                      << (variant.tied_head ? ", tied" : ", untied"));
      const Values whole = gradients({});
      // The second parentheses keep a failure from printing thousands of numbers.
      CHECK((gradients({1}) == whole));
      CHECK((gradients({1, 2}) == whole));
      if (sequences.size() == 7) CHECK((gradients({1, 2, 3, 4, 5, 6}) == whole));
    }
  }
}

// Scenarios 7 and 10.
TEST_CASE("a sequence has the same hidden states alone and packed between others, and again", "[device]") {
  const Device device = every_device();
  INFO(kernels::device_name(device));
  for (const Variant& variant : variants(device)) {
    const TransformerConfig config = tiny_model(variant);
    const Parameters parameters = lively_parameters(config, DType::f32, device);
    for (const DType dtype : trainer_types(device)) {
      auto sequences = tiny_sequences();
      sequences.resize(sized<size_t>(device, 7, 3));
      const Tensor all = hidden_states(config, parameters, plain_profile(dtype), sequences);
      CHECK(hidden_states(config, parameters, plain_profile(dtype), sequences).to_doubles() == all.to_doubles());
      size_t begin = 0;
      for (const auto& sequence : sequences) {
        const Tensor alone =
            hidden_states(config, parameters, plain_profile(dtype), std::vector<std::vector<int32_t>>{sequence});
        CHECK(alone.to_doubles() == rows_of(all, begin, begin + sequence.size()));
        begin += sequence.size();
      }
    }
  }
}

// Scenario 8.
TEST_CASE("threads change no bit") {
  TransformerConfig config;
  config.vocabulary = 37;
  config.layers = 2;
  config.width = 48;
  config.heads = 3;
  config.kv_heads = 1;
  config.qk_norm = true;
  config.max_positions = 64;
  config = config.resolved();
  std::vector<std::vector<int32_t>> sequences;
  for (int s = 0; s < 40; ++s) {
    std::vector<int32_t>& sequence = sequences.emplace_back();
    for (int i = 0; i < 3 + s; ++i) sequence.push_back((s * 7 + i * i) % 37);
  }
  for (const DType dtype : kTrainerTypes) {
    const auto run = [&](int threads) {
      kernels::set_compute_threads(threads);
      Parameters parameters = lively_parameters(config, DType::f32);
      parameters.set_requires_grad(true);
      Values result = hidden_states(config, parameters, plain_profile(dtype), sequences).to_doubles();
      trainer_pass(config, parameters, plain_profile(dtype), sequences);
      const Values gradients = all_gradients(parameters);
      result.insert(result.end(), gradients.begin(), gradients.end());
      kernels::set_compute_threads(1);
      return result;
    };
    const Values one = run(1);
    CHECK((run(2) == one));
    CHECK((run(4) == one));
  }
}

TEST_CASE("K and V are rounded to the cache's format, unless it holds them", "[device]") {
  const Device device = every_device();
  INFO(kernels::device_name(device));
  const TransformerConfig config = tiny_model();
  const Parameters parameters = lively_parameters(config, DType::f32, device);
  const auto states = [&](DType output, Format cache, double scale) {
    auto profile = plain_profile(output);
    profile.kv_cache = cache;
    profile.kv_scale = scale;
    return hidden_states(config, parameters, profile, tiny_sequences()).to_doubles();
  };
  const Values exact = states(DType::bf16, Format::bf16, 1.0);
  CHECK(states(DType::bf16, Format::fp32, 1.0) == exact);
  CHECK(states(DType::bf16, Format::e4m3, 1.0) != exact);
  CHECK(states(DType::bf16, Format::e4m3, 1.0) != states(DType::bf16, Format::e4m3, 0.3));
  CHECK(relative_error(states(DType::bf16, Format::e4m3, 1.0), exact) < 0.1);
  CHECK(states(DType::f32, Format::bf16, 1.0) != states(DType::f32, Format::fp32, 1.0));
  CHECK(states(DType::f64, Format::e4m3, 1.0) == states(DType::f64, Format::fp64, 1.0));
}

TEST_CASE("profiles that cannot be trained are refused") {
  const TransformerConfig config = tiny_model();
  const Parameters parameters = Parameters::zeros(config);
  const RopeTable table(config.max_positions, config.head_dim, config.rope_theta, DType::f32);
  for (const auto& profile : kernels::profiles()) {
    const bool plain = profile.weight.scaling == kernels::Scaling::none;
    INFO(profile.name);
    if (plain) {
      CHECK_NOTHROW(TrainerContext(config, parameters, profile, table));
    } else {
      CHECK_THROWS_AS(TrainerContext(config, parameters, profile, table), ContractError);
    }
  }
}

TEST_CASE("a position beyond the table is refused") {
  TransformerConfig config = tiny_model();
  config.max_positions = 4;
  const Parameters parameters = Parameters::zeros(config);
  CHECK_THROWS_AS(hidden_states(config, parameters, plain_profile(DType::f32), tiny_sequences()), ContractError);
}

TEST_CASE("initialization repeats under its seed and gives small logits") {
  TransformerConfig config = tiny_model();
  const auto first = Parameters::initialize(config, 1).fingerprints();
  CHECK(Parameters::initialize(config, 1).fingerprints() == first);
  const auto other = Parameters::initialize(config, 2).fingerprints();
  CHECK(other.at("model.embed_tokens.weight") != first.at("model.embed_tokens.weight"));
  CHECK(other.at("model.norm.weight") == first.at("model.norm.weight"));
  const std::string gate = projection_name(0, Projection::gate), up = projection_name(0, Projection::up);
  CHECK(first.at(gate) != first.at(up));

  config = TransformerConfig{};
  config.vocabulary = 64;
  config = config.resolved();
  for (const bool tied : {true, false}) {
    config.tied_head = tied;
    const Parameters parameters = Parameters::initialize(config, 5);
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < 100; ++i) ids.push_back(i * 37 % 64);
    const double mean =
        trainer_pass(config, parameters, plain_profile(DType::f32), std::vector<std::vector<int32_t>>{ids}) / 99.0;
    // Per token: log p of about -log 64, and 0.1 of an entropy of about log 64.
    CHECK(mean == Approx(-0.9 * std::log(64.0)).margin(0.5));
  }
}

TEST_CASE("parameters have Hugging Face's names, shapes and order") {
  TransformerConfig config = tiny_model({true, false});
  config.layers = 1;
  std::vector<std::string> lines;
  for (const auto& [name, shape] : Parameters::layout(config)) {
    lines.push_back(name);
    for (const int64_t size : shape) lines.back() += " " + std::to_string(size);
  }
  CHECK(lines == std::vector<std::string>{
                     "model.embed_tokens.weight 11 8", "model.layers.0.input_layernorm.weight 8",
                     "model.layers.0.self_attn.q_proj.weight 16 8", "model.layers.0.self_attn.k_proj.weight 8 8",
                     "model.layers.0.self_attn.v_proj.weight 8 8", "model.layers.0.self_attn.o_proj.weight 8 16",
                     "model.layers.0.self_attn.q_norm.weight 4", "model.layers.0.self_attn.k_norm.weight 4",
                     "model.layers.0.post_attention_layernorm.weight 8", "model.layers.0.mlp.gate_proj.weight 12 8",
                     "model.layers.0.mlp.up_proj.weight 12 8", "model.layers.0.mlp.down_proj.weight 8 12",
                     "model.norm.weight 8", "lm_head.weight 11 8"});
  const Parameters parameters = Parameters::zeros(config);
  CHECK(parameters.count() == 11 * 8 * 2 + 8 * 3 + 16 * 8 * 2 + 8 * 8 * 2 + 8 + 12 * 8 * 3);
  CHECK_THROWS_AS(parameters.at("model.embed"), ContractError);
  Parameters copy = parameters.clone();
  copy.at("model.norm.weight").data<float>()[0] = 1.0f;
  CHECK(parameters.at("model.norm.weight").to_doubles()[0] == 0.0);
  CHECK(copy.fingerprints() != parameters.fingerprints());
}

TEST_CASE("impossible models are refused by field") {
  const auto refused = [](const char* field, auto&& change) {
    TransformerConfig config;
    config.vocabulary = 10;
    change(config);
    CHECK_THROWS_WITH(config.resolved(), Catch::Contains(std::string("model.") + field));
  };
  refused("vocabulary", [](TransformerConfig& c) { c.vocabulary = 0; });
  refused("layers", [](TransformerConfig& c) { c.layers = 0; });
  refused("width", [](TransformerConfig& c) { c.width = -4; });
  refused("width", [](TransformerConfig& c) { c.width = 130; });
  refused("heads", [](TransformerConfig& c) { c.kv_heads = 3; });
  refused("kv_heads", [](TransformerConfig& c) { c.kv_heads = 0; });
  refused("head_dim", [](TransformerConfig& c) { c.head_dim = 7; });
  refused("ffn", [](TransformerConfig& c) { c.ffn = -1; });
  refused("rope_theta", [](TransformerConfig& c) { c.rope_theta = 0.0; });
  refused("norm_eps", [](TransformerConfig& c) { c.norm_eps = NAN; });
  refused("max_positions", [](TransformerConfig& c) { c.max_positions = 0; });
  TransformerConfig config;
  config.vocabulary = 10;
  CHECK(config.resolved().head_dim == 32);
  CHECK(config.resolved().ffn == 352);
  CHECK(config.resolved().resolved() == config.resolved());
}
