#include "actors/experiment.h"

#include <catch2/catch.hpp>

namespace motley {
namespace {

Experiment with(const std::string& correction) {
  Experiment e;
  e.algo.correction = correction;
  e.algo.parameters = algos::default_parameters(correction);
  return e;
}

}  // namespace

TEST_CASE("profiles of trainer and groups") {
  Experiment e;
  e.trainer.profile = "fp16";
  CHECK(e.trainer_profile().name == "fp16");
  SamplerGroupOptions group;
  CHECK(e.group_profile(group) == e.trainer_profile());
  e.trainer.kernels = "vendor";  // of the trainer alone
  CHECK_FALSE(e.trainer_profile().invariant);
  CHECK(e.group_profile(group).invariant);
  group.kernels = "vendor";
  CHECK(e.group_profile(group) == e.trainer_profile());
  e.trainer.kernels = group.kernels = "invariant";
  group.profile = "h100-fp8";
  CHECK(e.group_profile(group).name == "h100-fp8");
  group.profile = "h101";
  CHECK_THROWS_AS(e.group_profile(group), std::invalid_argument);
}

TEST_CASE("auto records what the correction needs, and candidates when the distribution is truncated") {
  CHECK(with("grpo").record_kind() == RecordKind::sampled);
  CHECK(with("mis").record_kind() == RecordKind::sampled);
  CHECK(with("sc").record_kind() == RecordKind::top_k);
  Experiment e = with("sc+mis");
  e.sampling.record = "full";
  CHECK(e.record_kind() == RecordKind::full);
  e = with("mis");
  e.sampling.top_p = 0.99;
  CHECK(e.record_kind() == RecordKind::candidates);
  e.sampling.top_p = 1.0;
  e.sampling.top_k = 5;
  CHECK(e.record_kind() == RecordKind::candidates);
}

TEST_CASE("the learner's configuration counts optimizer steps, not updates") {
  Experiment e = with("mis");
  e.seed = 7;
  e.run.updates = 10;
  e.algo.minibatches = 4;
  e.algo.epochs = 3;
  e.trainer.warmup_updates = 2;
  e.trainer.schedule = "linear";
  e.sampling.max_tokens = 9;
  algos::LearnerConfig config = e.learner_config();
  CHECK(config.optimizer.total_steps == 120);
  CHECK(config.optimizer.warmup_steps == 24);
  CHECK(config.optimizer.schedule == "linear");
  CHECK(config.max_tokens == 9);
  CHECK(config.seed == 7);
  CHECK(config.correction_parameters == e.algo.parameters);
  e.samplers.resize(2);
  e.samplers[1].name = "b";
  e.samplers[1].parameters = {{"mis.high", 3.0}};
  CHECK(algos::number(e.learner_config().correction_parameters, "mis.high@b") == 3.0);
  CHECK(algos::number(e.learner_config().correction_parameters, "mis.high") == 5.0);
  CHECK(config.kv_format == e.trainer_profile().kv_cache);
  CHECK_FALSE(config.loss_scale.enabled);
  e.trainer.profile = "fp16";
  CHECK(e.learner_config().loss_scale.enabled);
  CHECK(e.learner_config().loss_scale.growth_interval == 400);
}

}  // namespace motley
