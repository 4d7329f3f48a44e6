#include "tensor/optimizer.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "tests/tensor/gradcheck.h"

using namespace motley;
using namespace motley::test;
using Values = std::vector<double>;

namespace {

TransformerConfig tiny_config() {
  TransformerConfig config;
  config.vocabulary = 5;
  config.layers = 1;
  config.width = 4;
  config.heads = 2;
  config.kv_heads = 1;
  config.ffn = 6;
  config.max_positions = 8;
  return config.resolved();
}

/// Adds `scale` times reproducible numbers to every gradient.
void fill_gradients(Parameters& parameters, uint64_t seed, double scale = 1.0) {
  for (const std::string& name : parameters.names()) {
    const Tensor& tensor = parameters.at(name);
    tensor.add_grad(normals(tensor.shape(), seed++, tensor.dtype(), scale).to(tensor.device()));
  }
}

double gradient_norm(Parameters& parameters) {
  double total = 0.0;
  for (const std::string& name : parameters.names()) {
    for (const double g : parameters.at(name).grad_buffer().to_doubles()) total += g * g;
  }
  return std::sqrt(total);
}

constexpr const char* kMatrix = "model.layers.0.self_attn.q_proj.weight";
constexpr const char* kNorm = "model.norm.weight";

}  // namespace

TEST_CASE("AdamW follows its formulas", "[device]") {
  const Device device = every_device();
  INFO(kernels::device_name(device));
  AdamWConfig config;
  config.lr = 0.01;
  config.beta1 = 0.8;
  config.beta2 = 0.9;
  config.weight_decay = 0.1;
  config.clip_norm = 0.0;
  Parameters model = Parameters::initialize(tiny_config(), 1, DType::f64).clone(device);
  for (const char* name : {kMatrix, kNorm}) {
    Values w = model.at(name).to_doubles(), m(w.size(), 0.0), v(w.size(), 0.0);
    const double decay = std::string(name) == kMatrix ? config.weight_decay : 0.0;  // vectors do not decay
    AdamW fresh(model, config);
    for (int step = 1; step <= 3; ++step) {
      fill_gradients(model, static_cast<uint64_t>(step) * 100);
      const Values g = model.at(name).grad().to_doubles();
      const double norm = gradient_norm(model);
      const StepOutcome outcome = fresh.step();
      CHECK_FALSE(outcome.skipped);
      CHECK(outcome.lr == 0.01);
      CHECK(outcome.grad_norm == Approx(norm).epsilon(1e-12));
      const Values updated = model.at(name).to_doubles();
      for (size_t i = 0; i < w.size(); ++i) {
        m[i] = 0.8 * m[i] + 0.2 * g[i];
        v[i] = 0.9 * v[i] + 0.1 * g[i] * g[i];
        const double m_hat = m[i] / (1 - std::pow(0.8, step)), v_hat = v[i] / (1 - std::pow(0.9, step));
        w[i] -= 0.01 * (m_hat / (std::sqrt(v_hat) + config.eps) + decay * w[i]);
        CHECK(updated[i] == Approx(w[i]).epsilon(1e-12));
      }
      CHECK(model.at(name).grad_buffer().to_doubles() == Values(w.size(), 0.0));
    }
    CHECK(fresh.steps() == 3);
  }
}

TEST_CASE("clipping scales the gradient down to the norm", "[device]") {
  const Device device = every_device();
  INFO(kernels::device_name(device));
  AdamWConfig config;
  config.beta1 = 0.0;
  config.clip_norm = 0.5;
  Parameters parameters = Parameters::initialize(tiny_config(), 1, DType::f64).clone(device);
  AdamW optimizer(parameters, config);
  fill_gradients(parameters, 7);
  const double norm = gradient_norm(parameters);
  REQUIRE(norm > 0.5);
  const Values gradient = parameters.at(kMatrix).grad().to_doubles();
  CHECK(optimizer.step().grad_norm == Approx(norm).epsilon(1e-12));
  const Values first = optimizer.state().tensors.at(std::string("adam.first/") + kMatrix).to_doubles();
  for (size_t i = 0; i < first.size(); ++i) CHECK(first[i] == Approx(gradient[i] * 0.5 / norm).epsilon(1e-12));
  fill_gradients(parameters, 7, 1e-4);  // below the norm: as it is
  const Values small = parameters.at(kMatrix).grad().to_doubles();
  optimizer.step();
  CHECK(optimizer.state().tensors.at(std::string("adam.first/") + kMatrix).to_doubles()[0] ==
        Approx(small[0]).epsilon(1e-12));
}

TEST_CASE("learning-rate schedules") {
  Parameters parameters = Parameters::zeros(tiny_config());
  AdamWConfig config;
  config.lr = 1.0;
  config.warmup_steps = 4;
  CHECK(AdamW(parameters, config).learning_rate(1) == 0.25);
  CHECK(AdamW(parameters, config).learning_rate(4) == 1.0);
  CHECK(AdamW(parameters, config).learning_rate(1000) == 1.0);
  config.schedule = "linear";
  config.total_steps = 14;
  CHECK(AdamW(parameters, config).learning_rate(2) == 0.5);
  CHECK(AdamW(parameters, config).learning_rate(5) == Approx(0.9));
  CHECK(AdamW(parameters, config).learning_rate(14) == 0.0);
  CHECK(AdamW(parameters, config).learning_rate(20) == 0.0);
  config.schedule = "cosine";
  CHECK(AdamW(parameters, config).learning_rate(9) == Approx(0.5));
  CHECK(AdamW(parameters, config).learning_rate(14) == Approx(0.0).margin(1e-16));
}

TEST_CASE("impossible optimizer settings are refused") {
  Parameters parameters = Parameters::zeros(tiny_config());
  const auto refused = [&](auto&& change) {
    AdamWConfig config;
    change(config);
    CHECK_THROWS_AS(AdamW(parameters, config), std::invalid_argument);
  };
  refused([](AdamWConfig& c) { c.lr = -1.0; });
  refused([](AdamWConfig& c) { c.lr = NAN; });
  refused([](AdamWConfig& c) { c.beta1 = 1.0; });
  refused([](AdamWConfig& c) { c.beta2 = -0.1; });
  refused([](AdamWConfig& c) { c.eps = 0.0; });
  refused([](AdamWConfig& c) { c.weight_decay = -1.0; });
  refused([](AdamWConfig& c) { c.clip_norm = -1.0; });
  refused([](AdamWConfig& c) { c.schedule = "step"; });
  refused([](AdamWConfig& c) { c.schedule = "linear"; });
  refused([](AdamWConfig& c) { c.warmup_steps = -1; });
}

// Scenario 16.
TEST_CASE("an overflow skips the step and changes nothing but the loss scale", "[device]") {
  const Device device = every_device();
  INFO(kernels::device_name(device));
  AdamWConfig config;
  config.warmup_steps = 10;
  LossScale scale;
  scale.enabled = true;
  scale.scale = 1024.0;
  scale.growth_interval = 3;
  Parameters parameters = Parameters::initialize(tiny_config(), 1).clone(device);
  AdamW optimizer(parameters, config, scale);
  fill_gradients(parameters, 5, 1024.0);
  const double norm = gradient_norm(parameters);
  const StepOutcome clean = optimizer.step();
  CHECK(clean.grad_norm == Approx(norm / 1024.0).epsilon(1e-6));
  CHECK(optimizer.loss_scale().clean_steps == 1);

  const auto weights = parameters.fingerprints();
  const auto moments = optimizer.state().tensors;
  double expected_scale = 1024.0;
  for (const double bad : {static_cast<double>(INFINITY), -static_cast<double>(INFINITY), static_cast<double>(NAN)}) {
    fill_gradients(parameters, 5);
    store(parameters.at(kMatrix).grad_buffer(), 3, bad);
    const StepOutcome outcome = optimizer.step();
    expected_scale /= 2.0;
    CHECK(outcome.skipped);
    CHECK(std::isnan(outcome.grad_norm));
    CHECK(optimizer.loss_scale().scale == expected_scale);
    CHECK(optimizer.loss_scale().clean_steps == 0);
  }
  CHECK(parameters.fingerprints() == weights);
  for (const auto& [name, tensor] : optimizer.state().tensors)
    CHECK(fingerprint(tensor) == fingerprint(moments.at(name)));
  CHECK(optimizer.steps() == 1);
  CHECK(optimizer.skipped() == 3);
  CHECK(optimizer.learning_rate(optimizer.steps() + 1) == Approx(config.lr * 0.2));
  CHECK(parameters.at(kMatrix).grad_buffer().to_doubles()[3] == 0.0);

  for (int i = 0; i < 3; ++i) {
    fill_gradients(parameters, 6);
    CHECK_FALSE(optimizer.step().skipped);
  }
  CHECK(optimizer.loss_scale().scale == 2.0 * expected_scale);
  CHECK(optimizer.loss_scale().clean_steps == 0);
}

TEST_CASE("without loss scaling an overflow is skipped too, and the scale stays one", "[device]") {
  const Device device = every_device();
  INFO(kernels::device_name(device));
  Parameters parameters = Parameters::initialize(tiny_config(), 1).clone(device);
  AdamW optimizer(parameters, {});
  CHECK(optimizer.loss_scale().scale == 1.0);
  const auto weights = parameters.fingerprints();
  store(parameters.at(kNorm).grad_buffer(), 0, INFINITY);
  CHECK(optimizer.step().skipped);
  CHECK(parameters.fingerprints() == weights);
  CHECK(optimizer.loss_scale().scale == 1.0);
}

TEST_CASE("the loss scale does not fall below its minimum", "[device]") {
  const Device device = every_device();
  INFO(kernels::device_name(device));
  LossScale scale;
  scale.enabled = true;
  scale.scale = 1.5;
  Parameters parameters = Parameters::initialize(tiny_config(), 1).clone(device);
  AdamW optimizer(parameters, {}, scale);
  store(parameters.at(kNorm).grad_buffer(), 0, NAN);
  optimizer.step();
  CHECK(optimizer.loss_scale().scale == 1.0);
}

TEST_CASE("a restored optimizer goes on bit for bit", "[device]") {
  const Device device = every_device();
  INFO(kernels::device_name(device));
  AdamWConfig config;
  config.weight_decay = 0.1;
  config.schedule = "cosine";
  config.total_steps = 20;
  LossScale scale;
  scale.enabled = true;
  scale.growth_interval = 2;
  Parameters whole = Parameters::initialize(tiny_config(), 1).clone(device);
  AdamW optimizer(whole, config, scale);
  const auto run = [](Parameters& parameters, AdamW& adam, int from, int to) {
    for (int step = from; step < to; ++step) {
      fill_gradients(parameters, static_cast<uint64_t>(step), adam.loss_scale().scale);
      if (step == 1) store(parameters.at(kMatrix).grad_buffer(), 0, INFINITY);
      adam.step();
    }
  };
  run(whole, optimizer, 0, 5);
  Parameters half = whole.clone();
  const AdamW::State state = optimizer.state();
  run(whole, optimizer, 5, 10);

  AdamW resumed(half, config, scale);
  resumed.restore(state);
  CHECK(resumed.steps() == 4);
  CHECK(resumed.skipped() == 1);
  run(half, resumed, 5, 10);
  CHECK(half.fingerprints() == whole.fingerprints());
  CHECK(resumed.state().numbers == optimizer.state().numbers);

  AdamW::State broken = state;
  broken.tensors.erase(std::string("adam.second/") + kNorm);
  CHECK_THROWS_WITH(resumed.restore(broken), Catch::Contains("adam.second/model.norm.weight is missing"));
  broken = state;
  broken.tensors.at(std::string("adam.first/") + kNorm) = Tensor::zeros({3}, DType::f32);
  CHECK_THROWS_WITH(resumed.restore(broken), Catch::Contains("adam.first/model.norm.weight has another shape"));
  broken = state;
  broken.numbers.erase("adam.steps");
  CHECK_THROWS_WITH(resumed.restore(broken), Catch::Contains("adam.steps is missing"));
  CHECK(resumed.state().numbers == optimizer.state().numbers);  // a refused state changes nothing
}
