// The bitwise profile end to end: what the engine records while it decodes is bit for bit what the learner computes.
#include <catch2/catch.hpp>

#include "tensor/engine.h"
#include "tests/algos/episodes.h"

namespace motley::algos {
namespace {

struct Sampling {
  double temperature = 1.0, top_p = 1.0;
  RecordKind record = RecordKind::sampled;
};

/// `count` episodes decoded together, with rewards that alternate; groups of two.
std::vector<Trajectory> decode(const TransformerConfig& model, const Parameters& parameters,
                               const kernels::NumericProfile& profile, const Sampling& sampling, size_t count) {
  Engine engine(std::make_shared<SamplerWeights>(model, parameters, profile, 3), EngineLimits{});
  std::vector<Trajectory> episodes(count);
  kernels::RandomStream random({51, kernels::Purpose::data, 0, 0});
  for (size_t i = 0; i < count; ++i) {
    Trajectory& episode = episodes[i];
    for (size_t k = 0; k < 2 + i % 3; ++k) {
      episode.tokens.push_back(static_cast<int32_t>(random.below(static_cast<uint64_t>(model.vocabulary))));
    }
    episode.loss_mask.assign(episode.tokens.size(), 0);
    episode.group = i / 2;
    episode.reward = i % 2 ? 1.0 : 0.0;
    episode.temperature = sampling.temperature;
    episode.sampler = "trainer";
    episode.batch_version = 3;
    GenerateRequest request;
    request.id = i;
    request.tokens = episode.tokens;
    request.max_new_tokens = static_cast<int64_t>(4 + 3 * i);
    request.rule.temperature = sampling.temperature;
    request.rule.top_p = sampling.top_p;
    request.record = sampling.record;
    request.record_top_k = 4;
    request.key = {50, kernels::Purpose::train, i, 0};
    engine.submit(request);
  }
  while (!engine.idle()) {
    for (const StepOutput& output : engine.step()) {
      Trajectory& episode = episodes[output.id];
      for (const int32_t token : output.records.tokens) {
        episode.tokens.push_back(token);
        episode.loss_mask.push_back(1);
      }
      episode.records.append(output.records);
    }
  }
  return episodes;
}

TEST_CASE("same weights, same profile: kl is exactly 0 and every ratio exactly 1") {
  const auto type = GENERATE(DType::f32, DType::bf16, DType::f16);
  const auto sampling = GENERATE(Sampling{1.0, 1.0, RecordKind::sampled}, Sampling{0.6, 1.0, RecordKind::top_k},
                                 Sampling{1.0, 0.7, RecordKind::sampled}, Sampling{0.6, 0.9, RecordKind::candidates},
                                 Sampling{1.3, 1.0, RecordKind::full});
  const auto correction = GENERATE(as<std::string>{}, "grpo", "sc+mis");
  if (correction == "sc+mis" && sampling.record == RecordKind::sampled && sampling.top_p == 1.0) return;
  CAPTURE(kernels::dtype_name(type), sampling.temperature, sampling.top_p, correction);
  const TransformerConfig model = tiny_model();
  LearnerConfig config = learner_config(correction, type);
  Parameters parameters = masters(model, type);
  Learner learner(model, parameters, config);
  for (int update = 0; update < 2; ++update) {
    const auto batch = decode(model, parameters, learner.config().profile, sampling, 8);
    const Metrics m = learner.step(batch);
    REQUIRE(m.at("samples/failed") == 0);
    REQUIRE(m.at("samples/dropped_nan") == 0);
    CHECK(m.at("kl/sampler_trainer") == 0.0);
    CHECK(m.at("kl/k3") == 0.0);
    CHECK(m.at("ratio/max") == 1.0);
    CHECK(m.at("ratio/outside") == 0.0);
    CHECK(m.at("ratio/masked") == 0.0);
    CHECK(m.at("ess") == 1.0);
    CHECK(m.at("grad_norm") > 0.0);
    if (sampling.record == RecordKind::top_k && correction == "sc+mis") {
      // The tail of the head that is asked for {recorded ids} is the sampler's: the same sum, in the same order; only a
      // drawn token outside the record is added apart.
      CHECK(m.at("mass/log_tail_ratio_median") == Approx(0.0).margin(1e-6));
    }
  }
}

TEST_CASE("the trainer rounds K and V to the cache's format") {
  const TransformerConfig model = tiny_model();
  for (const auto format : {kernels::Format::e4m3, kernels::Format::bf16}) {
    LearnerConfig config = learner_config("grpo");
    config.kv_format = format;
    Parameters parameters = masters(model);
    Learner learner(model, parameters, config);
    REQUIRE(learner.config().profile.kv_cache == format);
    const auto batch = decode(model, parameters, learner.config().profile, {}, 6);
    const Metrics m = learner.gradient(batch);
    CHECK(m.at("kl/k3") == 0.0);
    CHECK(m.at("ratio/max") == 1.0);
    Learner exact(model, parameters, learner_config("grpo"));
    CHECK(exact.gradient(batch).at("kl/k3") > 0.0);
  }
}

TEST_CASE("the trainer over the whole vocabulary against a sampler that renormalized: ratios show it") {
  const TransformerConfig model = tiny_model();
  Parameters parameters = masters(model);
  Learner learner(model, parameters, learner_config("grpo"));
  auto batch = decode(model, parameters, learner.config().profile, {1.0, 0.7, RecordKind::sampled}, 4);
  for (Trajectory& t : batch) {  // as if the candidate sets had not been recorded
    t.records.offsets.assign(t.records.size() + 1, 0);
    t.records.ids.clear();
    t.records.id_log_q.clear();
    t.records.log_tail.assign(t.records.size(), 0.0f);
  }
  const Metrics m = learner.gradient(batch);
  CHECK(m.at("ratio/max") < 0.95);
}

TEST_CASE("another temperature on one side shows as ratios other than 1") {
  const TransformerConfig model = tiny_model();
  Parameters parameters = masters(model);
  Learner learner(model, parameters, learner_config("grpo"));
  auto batch = decode(model, parameters, learner.config().profile, {0.6, 1.0, RecordKind::sampled}, 4);
  for (Trajectory& t : batch) t.temperature = 1.0;
  CHECK(learner.gradient(batch).at("ratio/max") != 1.0);
}

}  // namespace
}  // namespace motley::algos
