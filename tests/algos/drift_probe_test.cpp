// The drift probe against exact values: batches in which every answer comes as often as its probability says.
#include "algos/drift_probe.h"

#include <catch2/catch.hpp>

#include "tests/algos/episodes.h"

namespace motley::algos {
namespace {

/// A sampler of answers of one token: q is a multiple of 1/16, over all 13 ids.
const std::vector<int> kCounts{4, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

Trajectory answer(int32_t drawn, uint64_t group, bool record) {
  Trajectory sample;
  sample.group = group;
  sample.sampler = "a";
  sample.tokens = {3, 5, 7, drawn};
  sample.loss_mask = {0, 0, 0, 1};
  reference::Token token;
  for (const int count : kCounts) token.q.push_back(count / 16.0);
  token.listed.assign(13, true);
  append_record(sample, drawn, token, record);
  return sample;
}
/// Every answer as often as q says, as one prompt's group.
void append_all(std::vector<Trajectory>& batch, uint64_t group, bool record = true) {
  for (size_t v = 0; v < kCounts.size(); ++v)
    for (int times = 0; times < kCounts[v]; ++times) batch.push_back(answer(static_cast<int32_t>(v), group, record));
}

struct Probe {
  TransformerConfig model = tiny_model();
  LearnerConfig config;
  Parameters parameters;
  explicit Probe(DType type = DType::f64) : config(learner_config("grpo", type)), parameters(masters(model, type)) {
    parameters.set_requires_grad(true);
  }
  Metrics measure(const std::vector<Trajectory>& batch, const std::vector<std::string>& corrections,
                  int64_t samples = 1000) {
    std::vector<DriftProbe::Rule> rules;
    for (const std::string& name : corrections) rules.push_back({name, {}});
    return DriftProbe(model, parameters, config, rules).measure(batch, samples);
  }
};

TEST_CASE("with both halves complete, the drift is the squared norm of the exact expected gradient") {
  std::vector<Trajectory> batch;
  append_all(batch, 1);
  append_all(batch, 2);
  Probe probe;
  const Metrics m = probe.measure(batch, {"grpo", "mis", "tis", "sc", "sc+mis"});
  // Plain GRPO at A = 1 is maximum likelihood on the sampler's answers.
  Parameters copy = probe.parameters.clone();
  LearnerConfig config = probe.config;
  config.optimizer.clip_norm = 0.0;
  Learner learner(probe.model, copy, config);
  std::vector<Learner::Demonstration> pairs;
  for (size_t i = 0; i < 16; ++i) pairs.push_back({batch[i].tokens, batch[i].loss_mask});
  const double norm = learner.supervised_step(pairs).at("grad_norm");
  CHECK(m.at("drift/grpo/squared_norm") == Approx(norm * norm).epsilon(1e-10));
  CHECK(std::abs(m.at("drift/grpo/noise")) < 1e-12);  // the halves are equal
  CHECK(m.at("drift/grpo/squared_norm") > 1e-3);
  // With a complete record centering leaves nothing; log q in float is what remains of it.
  CHECK(m.at("drift/sc/squared_norm") < 1e-12 * norm * norm);
  CHECK(m.at("drift/sc+mis/squared_norm") < 1e-12 * norm * norm);
}

TEST_CASE("in float32 the drift agrees with float64 to 1e-5, and the gradients are left zero") {
  std::vector<Trajectory> batch;
  append_all(batch, 1);
  append_all(batch, 2);
  Probe exact, single(DType::f32);
  // The f64 masters hold the f32 ones' values.
  for (const std::string& name : single.parameters.names())
    exact.parameters.at(name) = Tensor::from(std::span<const double>(single.parameters.at(name).to_doubles()),
                                             single.parameters.at(name).shape(), DType::f64);
  exact.parameters.set_requires_grad(true);
  const double a = exact.measure(batch, {"grpo"}).at("drift/grpo/squared_norm");
  const double b = single.measure(batch, {"grpo"}).at("drift/grpo/squared_norm");
  CHECK(b == Approx(a).epsilon(1e-5));
  for (const double value : gradients(single.parameters)) CHECK(value == 0.0);
}

TEST_CASE("split in halves the estimate is unbiased, where the squared norm of one mean is not") {
  std::vector<Trajectory> complete;
  append_all(complete, 1);
  append_all(complete, 2);
  Probe probe;
  const double exact = probe.measure(complete, {"grpo"}).at("drift/grpo/squared_norm");
  kernels::RandomStream random({11, kernels::Purpose::data, 0, 0});
  double sum = 0, squares = 0, biased = 0;
  constexpr int kDraws = 150;
  for (int draw = 0; draw < kDraws; ++draw) {
    std::vector<Trajectory> batch;
    for (size_t i = 0; i < 8; ++i) {
      auto place = static_cast<int>(random.below(16));
      int32_t drawn = 0;
      while ((place -= kCounts[static_cast<size_t>(drawn)]) >= 0) ++drawn;
      batch.push_back(answer(drawn, i / 4, false));
    }
    const Metrics m = probe.measure(batch, {"grpo"});
    const double drift = m.at("drift/grpo/squared_norm");
    sum += drift;
    squares += drift * drift;
    biased += drift + m.at("drift/grpo/noise");
  }
  const double mean = sum / kDraws, error = std::sqrt((squares / kDraws - mean * mean) / kDraws);
  CAPTURE(exact, mean, error, biased / kDraws);
  CHECK(std::abs(mean - exact) < 4 * error);
  CHECK(biased / kDraws > exact + 4 * error);
}

TEST_CASE("prompts are dealt into two halves until there are samples enough") {
  std::vector<Trajectory> batch;
  for (uint64_t group = 0; group < 6; ++group) append_all(batch, group);
  for (size_t i = 64; i < batch.size(); ++i) batch[i].failure = "not to be looked at";
  Probe probe;
  const Metrics four = probe.measure(batch, {"grpo"}, 1000);
  CHECK(probe.measure(batch, {"grpo"}, 64) == four);
  for (size_t i = 32; i < batch.size(); ++i) batch[i].tokens[0] = 1;
  for (size_t i = 32; i < 64; ++i) batch[i].failure = "";
  // Prompts 0 and 1 are equal, and 2 and 3: dealt in turn they give equal halves.
  CHECK(std::abs(probe.measure(batch, {"grpo"}, 64).at("drift/grpo/noise")) < 1e-12);
  CHECK(probe.measure(batch, {"grpo"}, 1) == probe.measure({batch.begin(), batch.begin() + 32}, {"grpo"}));
  CHECK(probe.measure(batch, {"grpo"}, 33) != probe.measure(batch, {"grpo"}, 32));
  CHECK(probe.measure({batch.begin(), batch.begin() + 16}, {"grpo"}).empty());
  CHECK(probe.measure({}, {"grpo"}).empty());
  CHECK_THROWS_AS(probe.measure(batch, {"grop"}), std::invalid_argument);
}

}  // namespace
}  // namespace motley::algos
