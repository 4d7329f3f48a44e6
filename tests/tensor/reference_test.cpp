// The decoder against a plain float64 reading of Hugging Face's modeling_llama.py and modeling_qwen3.py, and a golden
// curve that pins the whole trainer.
#include <catch2/catch.hpp>
#include <cmath>

#include "tensor/optimizer.h"
#include "tests/tensor/tiny_model.h"

using namespace motley;
using namespace motley::test;
using Vector = std::vector<double>;

namespace {

Vector times(const Parameters& parameters, const std::string& name, const Vector& x) {
  const Tensor& weight = parameters.at(name);
  Vector y(static_cast<size_t>(weight.dim(0)), 0.0);
  for (size_t i = 0; i < y.size(); ++i) {
    for (size_t j = 0; j < x.size(); ++j) y[i] += weight.data<double>()[i * x.size() + j] * x[j];
  }
  return y;
}

void norm(double* x, size_t count, const Tensor& gain, double eps) {
  double square = 0.0;
  for (size_t i = 0; i < count; ++i) square += x[i] * x[i];
  const double rstd = 1.0 / std::sqrt(square / static_cast<double>(count) + eps);
  for (size_t i = 0; i < count; ++i) x[i] *= rstd * gain.data<double>()[i];
}

/// x * cos + rotate_half(x) * sin, rotate_half(x) = [-x2, x1].
void rotate(double* x, size_t head_dim, double position, double theta) {
  for (size_t i = 0; i < head_dim / 2; ++i) {
    const double angle = position / std::pow(theta, 2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
    const double a = x[i], b = x[i + head_dim / 2];
    x[i] = a * std::cos(angle) - b * std::sin(angle);
    x[i + head_dim / 2] = b * std::cos(angle) + a * std::sin(angle);
  }
}

Vector attend(const Vector& q, const std::vector<Vector>& keys, const std::vector<Vector>& values, size_t heads,
              size_t kv_heads, size_t head_dim) {
  Vector y(q.size(), 0.0);
  for (size_t h = 0; h < heads; ++h) {
    const size_t kv = h / (heads / kv_heads) * head_dim;
    Vector weights;
    double total = 0.0;
    for (const Vector& key : keys) {
      double score = 0.0;
      for (size_t i = 0; i < head_dim; ++i) score += q[h * head_dim + i] * key[kv + i];
      weights.push_back(std::exp(score / std::sqrt(static_cast<double>(head_dim))));
      total += weights.back();
    }
    for (size_t p = 0; p < keys.size(); ++p) {
      for (size_t i = 0; i < head_dim; ++i) y[h * head_dim + i] += weights[p] / total * values[p][kv + i];
    }
  }
  return y;
}

std::vector<Vector> reference_hidden(const TransformerConfig& config, const Parameters& parameters,
                                     const std::vector<int32_t>& ids) {
  const auto width = static_cast<size_t>(config.width), head_dim = static_cast<size_t>(config.head_dim);
  const auto heads = static_cast<size_t>(config.heads), kv_heads = static_cast<size_t>(config.kv_heads);
  std::vector<Vector> states;
  for (const int32_t id : ids) {
    const double* row = parameters.at("model.embed_tokens.weight").data<double>() + id * config.width;
    states.emplace_back(row, row + width);
  }
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    std::vector<Vector> keys, values;
    for (size_t t = 0; t < states.size(); ++t) {
      Vector x = states[t];
      norm(x.data(), width, parameters.at(prefix + "input_layernorm.weight"), config.norm_eps);
      Vector q = times(parameters, prefix + "self_attn.q_proj.weight", x);
      keys.push_back(times(parameters, prefix + "self_attn.k_proj.weight", x));
      values.push_back(times(parameters, prefix + "self_attn.v_proj.weight", x));
      const auto prepare = [&](Vector& all, const char* gain) {
        for (size_t at = 0; at < all.size(); at += head_dim) {
          if (config.qk_norm) norm(&all[at], head_dim, parameters.at(prefix + gain), config.norm_eps);
          rotate(&all[at], head_dim, static_cast<double>(t), config.rope_theta);
        }
      };
      prepare(q, "self_attn.q_norm.weight");
      prepare(keys.back(), "self_attn.k_norm.weight");
      const Vector mixed =
          times(parameters, prefix + "self_attn.o_proj.weight", attend(q, keys, values, heads, kv_heads, head_dim));
      for (size_t i = 0; i < width; ++i) states[t][i] += mixed[i];
      x = states[t];
      norm(x.data(), width, parameters.at(prefix + "post_attention_layernorm.weight"), config.norm_eps);
      Vector gate = times(parameters, prefix + "mlp.gate_proj.weight", x);
      const Vector up = times(parameters, prefix + "mlp.up_proj.weight", x);
      for (size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1.0 + std::exp(-gate[i])) * up[i];
      const Vector down = times(parameters, prefix + "mlp.down_proj.weight", gate);
      for (size_t i = 0; i < width; ++i) states[t][i] += down[i];
    }
  }
  for (Vector& state : states) norm(state.data(), width, parameters.at("model.norm.weight"), config.norm_eps);
  return states;
}

}  // namespace

TEST_CASE("the decoder agrees with a plain reading of its definition", "[device]") {
  const Device device = every_device();
  INFO(kernels::device_name(device));
  for (const Variant& variant : kVariants) {
    const TransformerConfig config = tiny_model(variant);
    Parameters parameters = Parameters::initialize(config, 3, DType::f64);
    uint64_t seed = 40;
    for (const std::string& name : parameters.names()) {
      parameters.at(name) = add(parameters.at(name), normals(parameters.at(name).shape(), ++seed, DType::f64, 0.3));
    }
    const RopeTable table(config.max_positions, config.head_dim, config.rope_theta, DType::f64, device);
    const auto profile = plain_profile(DType::f64);
    const Parameters there = parameters.clone(device);
    TrainerContext context(config, there, profile, table);
    const auto sequences = tiny_sequences();
    const Vector hidden = trainer_hidden(config, context, packed(sequences)).to_doubles();
    size_t at = 0;
    for (const auto& sequence : sequences) {
      for (const Vector& state : reference_hidden(config, parameters, sequence)) {
        // Values of order one after some hundred roundings of 2^-53 each.
        for (const double value : state) CHECK(hidden[at++] == Approx(value).margin(1e-12));
      }
    }
  }
}

TEST_CASE("ten training steps give the recorded losses", "[device]") {
  const Device device = every_device();
  INFO(kernels::device_name(device));
  struct Curve {
    DType dtype;
    double margin;
    Vector losses;
  };
  // Recorded from this trainer. The margins are for another libm (initial weights pass through log and cos): one
  // differing bit of a weight moves fp32 losses by 1e-7, and a bf16 weight by 2^-9 of itself.
  const Curve curves[] = {
      {DType::f32,
       1e-5,
       {2.269507, 2.044955, 1.861310, 1.715454, 1.596233, 1.497708, 1.433716, 1.354619, 1.268213, 1.180659}},
      {DType::bf16,
       2e-3,
       {2.268594, 2.054539, 1.867187, 1.723174, 1.576768, 1.491763, 1.400994, 1.306228, 1.223754, 1.114073}},
  };
  for (const auto& [dtype, margin, recorded] : curves) {
    const TransformerConfig config = tiny_model({true, true});
    Parameters parameters = Parameters::initialize(config, 11).clone(device);
    AdamWConfig settings;
    settings.lr = 0.02;
    settings.weight_decay = 0.01;
    settings.warmup_steps = 2;
    AdamW optimizer(parameters, settings);
    const auto sequences = tiny_sequences();
    std::vector<double> losses;
    for (int step = 0; step < sized(device, 10, 3); ++step) {
      losses.push_back(trainer_pass(config, parameters, plain_profile(dtype), sequences, -1.0 / 20.0));
      optimizer.step();
    }
    std::string line;
    for (const double loss : losses) line += std::to_string(loss) + ", ";
    INFO(kernels::dtype_name(dtype) << ": " << line);
    REQUIRE(losses.size() <= recorded.size());
    for (size_t i = 0; i < losses.size(); ++i) CHECK(losses[i] == Approx(recorded[i]).epsilon(0.0).margin(margin));
  }
}
