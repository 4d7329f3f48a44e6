// Optimizer steps: what is dropped and counted, minibatches and epochs, overflow, supervised steps.
#include <catch2/catch.hpp>

#include "tests/algos/episodes.h"

namespace motley::algos {
namespace {

using Catch::Matchers::Contains;

struct Run {
  TransformerConfig model = tiny_model();
  Parameters parameters;
  Learner learner;
  explicit Run(const LearnerConfig& config)
      : parameters(masters(model, config.profile.output)), learner(model, parameters, config) {}
};

TEST_CASE("a step changes the weights, advances the version and reports itself") {
  LearnerConfig config = learner_config("sc+mis");
  config.sampler_formats = {{"a", "fp8"}};
  Run run(config);
  const auto before = run.parameters.fingerprints();
  const Metrics m = run.learner.step(four_episodes("top_k"));
  CHECK(run.learner.steps() == 1);
  CHECK(run.learner.optimizer().steps() == 1);
  CHECK(run.parameters.fingerprints() != before);
  for (const char* name : {"loss",
                           "grad_norm",
                           "lr",
                           "steps/skipped",
                           "entropy",
                           "ess",
                           "kl/sampler_trainer",
                           "kl/k3",
                           "ratio/outside",
                           "ratio/masked",
                           "ratio/max",
                           "reward/mean",
                           "samples/count",
                           "group/a/share",
                           "staleness/mean",
                           "mass/log_tail_ratio_median",
                           "mass/log_tail_ratio_p99",
                           "group/a/ess_in_band",
                           "staleness/0-1/kl/trainer_sampler",
                           "format/fp8/ratio/chi2",
                           "log_ppl_gap"}) {
    CAPTURE(name);
    REQUIRE(m.contains(name));
    CHECK(std::isfinite(m.at(name)));
  }
  CHECK(m.at("lr") == Approx(1e-2));
  CHECK(!m.contains("loss_scale"));
  // Tails are those that the correction works with: plain GRPO looks at no record.
  Run plain(learner_config("grpo"));
  CHECK(!plain.learner.step(four_episodes("top_k")).contains("mass/log_tail_ratio_median"));
  run.learner.set_steps(41);
  run.learner.step(four_episodes("top_k"));
  CHECK(run.learner.steps() == 42);
}

TEST_CASE("grpo's loss is -A log p, and a step on one group makes its better sample likelier") {
  LearnerConfig config = learner_config("grpo", DType::f64);
  Run run(config);
  auto batch = four_episodes("sampled");
  batch.resize(2);
  const double before = run.learner.step(batch).at("loss");
  double after = 0.0;
  for (int i = 0; i < 5; ++i) after = run.learner.step(batch).at("loss");
  CHECK(after < before);
}

TEST_CASE("bad samples are dropped and counted, and the rest trains as without them") {
  LearnerConfig config = learner_config("sc+mis", DType::f64);
  auto batch = four_episodes("top_k");
  for (Trajectory extra : four_episodes("top_k", 22)) batch.push_back(std::move(extra));
  const auto good = std::vector<Trajectory>(batch.begin(), batch.begin() + 4);
  for (size_t i = 4; i < 8; ++i) batch[i].group = batch[i - 4].group;
  batch[4].failure = "the reward threw";
  batch[4].reward = 1e9;
  batch[5].records.log_q[0] = std::nanf("");
  batch[6].records.log_q[1] = -HUGE_VALF;
  batch[7].reward = std::nan("");
  Run with(config), without(config);
  const Metrics m = with.learner.step(batch), clean = without.learner.step(good);
  CHECK(with.parameters.fingerprints() == without.parameters.fingerprints());
  CHECK(m.at("samples/count") == 8);
  CHECK(m.at("samples/failed") == 2);
  CHECK(m.at("samples/dropped_nan") == 2);
  for (const auto& [name, value] : clean) {
    CAPTURE(name);
    if (!name.starts_with("samples/")) CHECK(m.at(name) == value);
  }
}

TEST_CASE("extreme ratios: the metric shows them, the gradient stays finite") {
  const auto correction = GENERATE(as<std::string>{}, "grpo", "mis", "sc", "sc+mis", "tis");
  const auto style = GENERATE(as<std::string>{}, "top_k", "full");
  CAPTURE(correction, style);
  Run run(learner_config(correction));
  auto batch = four_episodes(style);
  batch[0].records.log_q[0] = -100.0f;
  batch[3].records.id_log_q[0] = -HUGE_VALF;
  batch[3].records.id_log_q[1] = -1000.0f;
  if (style == "top_k") batch[3].records.log_tail[2] = -90.0f;
  const Metrics m = run.learner.step(batch);
  CHECK(m.at("ratio/max") > std::exp(90.0));
  CHECK(std::isfinite(m.at("grad_norm")));
  for (const auto& [name, value] : m) {
    CAPTURE(name, value);
    CHECK(std::isfinite(value));
  }
  CHECK(m.at("steps/skipped") == 0);
}

TEST_CASE("a step with nothing to train on changes nothing but the version") {
  Run run(learner_config("grpo"));
  const auto before = run.parameters.fingerprints();
  auto batch = four_episodes("sampled");
  for (Trajectory& t : batch) t.failure = "died";
  Metrics m = run.learner.step(batch);
  CHECK(m.at("samples/failed") == 4);
  CHECK(!m.contains("grad_norm"));
  CHECK(!m.contains("reward/mean"));
  m = run.learner.step({});
  CHECK(m.at("samples/count") == 0);
  batch = four_episodes("sampled");
  for (Trajectory& t : batch) t.reward = 0.1;  // no advantage anywhere
  m = run.learner.step(batch);
  CHECK(m.at("advantage/zero_groups") == 1.0);
  CHECK(m.at("loss") == 0.0);
  CHECK(m.contains("kl/sampler_trainer"));
  for (size_t i = 0; i < batch.size(); ++i) batch[i].group = i, batch[i].reward = static_cast<double>(i);
  m = run.learner.step(batch);  // groups of one
  CHECK(m.at("advantage/zero_groups") == 1.0);
  CHECK(run.parameters.fingerprints() == before);
  CHECK(run.learner.steps() == 4);
  CHECK(run.learner.optimizer().steps() == 0);
}

TEST_CASE("epochs and minibatches: number of steps, order by seed, metrics of every sample once") {
  LearnerConfig config = learner_config("tis", DType::f64);
  std::vector<Trajectory> batch;
  for (uint64_t g = 0; g < 6; ++g) {
    for (Trajectory t : four_episodes("sampled", 30 + g)) {
      t.group = 10 * g + t.group;
      batch.push_back(t);
    }
  }
  const auto trained = [&](int64_t minibatches, int64_t epochs, uint64_t seed, int64_t steps) {
    config.minibatches = minibatches;
    config.epochs = epochs;
    config.seed = seed;
    Run run(config);
    run.learner.set_steps(steps);
    const Metrics m = run.learner.step(batch);
    CHECK(m.at("samples/count") == 24);
    CHECK(m.at("episode/tokens") == 4);
    CHECK(run.learner.steps() == steps + 1);
    CHECK(run.learner.optimizer().steps() == std::min<int64_t>(minibatches, 12) * epochs);
    return run.parameters.fingerprints();
  };
  CHECK(trained(3, 2, 7, 0) == trained(3, 2, 7, 0));
  CHECK(trained(3, 2, 7, 0) != trained(3, 2, 8, 0));
  CHECK(trained(3, 2, 7, 0) != trained(3, 2, 7, 1));
  CHECK(trained(1, 1, 7, 0) == trained(1, 1, 8, 3));  // no order to draw
  CHECK(trained(1, 2, 7, 0) != trained(1, 1, 7, 0));
  trained(100, 1, 7, 0);  // no more minibatches than groups
}

TEST_CASE("metrics are those of the first epoch") {
  LearnerConfig config = learner_config("mis", DType::f64);
  const auto batch = four_episodes("sampled");
  Run once(config);
  const Metrics expected = once.learner.step(batch);
  config.epochs = 3;
  Run thrice(config);
  const Metrics found = thrice.learner.step(batch);
  for (const char* name : {"kl/sampler_trainer", "kl/k3", "ratio/max", "ess", "entropy", "ratio/masked"}) {
    CAPTURE(name);
    CHECK(found.at(name) == expected.at(name));
  }
}

TEST_CASE("minibatches of an unchanged model give the gradient of the batch") {
  // At learning rate 0 nothing moves, so that the first epoch's metrics are those of one whole batch.
  LearnerConfig config = learner_config("mis", DType::f64);
  config.optimizer.lr = 0.0;
  const auto batch = four_episodes("sampled");
  Run whole(config);
  const Metrics expected = whole.learner.step(batch);
  config.minibatches = 2;
  config.reduction = "prompt_mean";
  Run split(config);
  const Metrics found = split.learner.step(batch);
  for (const auto& [name, value] : expected) {
    CAPTURE(name);
    if (name != "loss" && name != "grad_norm") CHECK(found.at(name) == value);
  }
}

TEST_CASE("fp16: an overflow skips the step, halves the scale and is counted") {
  LearnerConfig config = learner_config("grpo", DType::f16);
  config.loss_scale.enabled = true;
  config.loss_scale.scale = 0x1p40;  // no fp16 gradient survives this
  Run run(config);
  const auto before = run.parameters.fingerprints();
  const auto batch = four_episodes("sampled");
  Metrics m = run.learner.step(batch);
  CHECK(run.parameters.fingerprints() == before);
  CHECK(m.at("loss_scale") == 0x1p39);
  CHECK(m.at("steps/skipped") == 1);
  CHECK(!m.contains("grad_norm"));
  CHECK(run.learner.steps() == 1);
  CHECK(run.learner.optimizer().steps() == 0);
  for (int i = 0; i < 40 && run.learner.optimizer().steps() == 0; ++i) m = run.learner.step(batch);
  CHECK(run.learner.optimizer().steps() == 1);  // the scale came down to where gradients fit
  CHECK(run.parameters.fingerprints() != before);
  CHECK(m.at("steps/skipped") == static_cast<double>(run.learner.steps() - 1));
  CHECK(m.at("lr") == Approx(config.optimizer.lr));

  config.loss_scale.scale = 1.0;
  Run unscaled(config);
  CHECK(unscaled.learner.step(batch).at("grad_norm") == Approx(m.at("grad_norm")).epsilon(0.02));  // fp16: 11 bits
}

TEST_CASE("supervised steps lower the mean cross-entropy of the answer tokens") {
  LearnerConfig config = learner_config("grpo", DType::f64);
  std::vector<Learner::Demonstration> pairs;
  for (const Trajectory& t : four_episodes("sampled")) pairs.push_back({t.tokens, t.loss_mask});
  Run run(config);
  const Metrics first = run.learner.supervised_step(pairs);
  CHECK(first.at("loss") == Approx(std::log(13.0)).epsilon(0.3));  // near uniform at the start
  CHECK(first.at("grad_norm") > 0.0);
  Metrics last;
  for (int i = 0; i < 20; ++i) last = run.learner.supervised_step(pairs);
  CHECK(last.at("loss") < 0.5 * first.at("loss"));
  CHECK(run.learner.steps() == 0);  // no weight version of the run

  config.micro_batch_tokens = 1;
  Run split(config), whole(learner_config("grpo", DType::f64));
  const Metrics a = split.learner.supervised_step(pairs), b = whole.learner.supervised_step(pairs);
  CHECK(split.parameters.fingerprints() == whole.parameters.fingerprints());
  CHECK(a.at("loss") == b.at("loss"));

  CHECK_THROWS_AS(run.learner.supervised_step({}), std::invalid_argument);
  CHECK_THROWS_AS(run.learner.supervised_step({{{1, 2}, {0}}}), std::invalid_argument);
  CHECK_THROWS_AS(run.learner.supervised_step({{{1, 2}, {1, 1}}}), std::invalid_argument);
}

TEST_CASE("a configuration that cannot work is refused when the learner is made") {
  const auto refused = [](auto change, const char* why) {
    LearnerConfig config = learner_config("grpo");
    change(config);
    CHECK_THROWS_WITH(Run(config), Contains(why));
  };
  refused([](auto& c) { c.correction = "gspoo"; }, "unknown correction");
  refused([](auto& c) { c.advantage = "gae"; }, "unknown advantage");
  refused([](auto& c) { c.reduction = "mean"; }, "unknown reduction");
  refused([](auto& c) { c.minibatches = 0; }, "minibatches");
  refused([](auto& c) { c.correction_parameters = {{"cap", 2.0}}; }, "allowed: none");
}

TEST_CASE("a correction that needs records stops the run when there are none") {
  Run run(learner_config("sc"));
  CHECK_THROWS_WITH(run.learner.step(four_episodes("sampled")), Contains("sampler group \"a\""));
}

}  // namespace
}  // namespace motley::algos
