// Runs whose batches depend on rewards, and what the objective needs from a checkpoint: groups of equal rewards that
// are drawn again, the reference policy, the moving baseline.
#include <atomic>

#include "actors/policy/learner_state.h"
#include "actors/policy/prompt_ledger.h"
#include "tests/actors/tiny_run.h"

namespace motley::actors {
namespace {

namespace fs = std::filesystem;

envs::Reward first_is_two(std::string_view reply) { return {.value = reply.starts_with("2") ? 1.0 : 0.0}; }

Experiment dropping(bool async, const std::string& task, TestTask::RewardFunction reward) {
  Experiment experiment = tiny_experiment(async);
  use_task(experiment, task, std::move(reward));
  experiment.algo.drop_equal_groups = true;
  experiment.algo.drop_limit = 50;
  experiment.eval.every = 0;
  return experiment;
}

/// Whole, and stopped after the first update and resumed: the same numbers and the same checkpoint.
void check_resume(const Experiment& experiment) {
  TemporaryFolder whole, halves;
  const Outcome all = run_tiny(experiment, whole.path());
  const Outcome first = run_tiny(experiment, halves.path(), {.stop_after = 1});
  const Outcome second = run_tiny(experiment, halves.path(), {.resume = first.summary.checkpoint});
  auto rows = first.seen.rows;
  rows.insert(rows.end(), second.seen.rows.begin(), second.seen.rows.end());
  CHECK(clockless(rows) == clockless(all.seen.rows));
  const Checkpoint one = load_checkpoint(all.summary.checkpoint), other = load_checkpoint(second.summary.checkpoint);
  CHECK(one.parameters.fingerprints() == other.parameters.fingerprints());
  CHECK(one.state->next_prompt == other.state->next_prompt);
  CHECK(one.state->extra == other.state->extra);
}

TEST_CASE("lock-step: groups of equal rewards are drawn again until the batch is full, and all of it repeats") {
  Experiment experiment = dropping(false, "first-is-two", first_is_two);
  experiment.run.updates = 3;
  experiment.algo.prompts = 3;
  TemporaryFolder folder;
  const Outcome outcome = run_tiny(experiment, folder.path());
  double drawn = 0.0, dropped = 0.0;
  for (size_t update = 1; update < outcome.seen.rows.size(); ++update) {
    const algos::Metrics& metrics = outcome.seen.rows[update].second;
    CHECK(metrics.at("samples/count") == 12.0);
    CHECK(metrics.at("advantage/zero_groups") == 0.0);
    CHECK(metrics.at("groups/drawn") == 3.0 + metrics.at("groups/dropped_equal"));
    drawn += metrics.at("groups/drawn");
    dropped += metrics.at("groups/dropped_equal");
    if (metrics.at("groups/dropped_equal") == 0.0)
      CHECK(metrics.at("reward/drawn") == metrics.at("reward/mean"));
    else
      CHECK(metrics.at("reward/drawn") != metrics.at("reward/mean"));
  }
  CHECK(dropped > 0.0);
  CHECK(outcome.seen.notes.empty());
  const RunState state = *load_checkpoint(outcome.summary.checkpoint).state;
  CHECK(static_cast<double>(state.next_prompt) == drawn);  // each prompt once, and none left over
  CHECK(state.extra.at(kUnfinished).empty());

  experiment.samplers[0].replicas = 2;
  experiment.run.threads = 1;
  TemporaryFolder other;
  CHECK(clockless(run_tiny(experiment, other.path()).seen.rows) == clockless(outcome.seen.rows));
  check_resume(experiment);
}

TEST_CASE("asynchronous: no group of equal rewards is trained on") {
  Experiment experiment = dropping(true, "first-is-two-async", first_is_two);
  TemporaryFolder folder;
  const Outcome outcome = run_tiny(experiment, folder.path());
  REQUIRE(outcome.seen.rows.size() == 3);
  for (size_t update = 1; update < 3; ++update) {
    CHECK(outcome.seen.rows[update].second.at("samples/count") == 8.0);
    CHECK(outcome.seen.rows[update].second.at("advantage/zero_groups") == 0.0);
  }
}

TEST_CASE("nothing but equal rewards: the run goes on after drop_limit batches, and says so") {
  const bool async = GENERATE(false, true);
  Experiment experiment = dropping(async, async ? "all-equal-async" : "all-equal",
                                   [](std::string_view) { return envs::Reward{.value = 1.0}; });
  experiment.algo.drop_limit = 3;
  TemporaryFolder folder;
  const Outcome outcome = run_tiny(experiment, folder.path());
  REQUIRE(outcome.seen.rows.size() == 3);
  const algos::Metrics& metrics = outcome.seen.rows[1].second;
  CHECK(metrics.at("samples/count") == 8.0);
  CHECK(metrics.at("advantage/zero_groups") == 1.0);
  CHECK(metrics.at("groups/drawn") >= 6.0);  // 3 batches of 2
  if (!async) CHECK(metrics.at("groups/drawn") == 6.0);
  REQUIRE(outcome.seen.notes.size() == 2);
  CHECK_THAT(outcome.seen.notes[0], Catch::Contains("update 1: only 0 of") && Catch::Contains("drop_limit = 3"));
}

TEST_CASE("a stop between two draws of one update leaves its prompts to the resumed run") {
  std::atomic<bool> dead{false};
  std::atomic<int> after{0};
  StopRequest stop{0};
  Experiment experiment = dropping(false, "dies-later", [&](std::string_view reply) {
    if (!dead) return first_is_two(reply);
    if (++after == 40) stop = 1;
    return envs::Reward{.value = 0.0};
  });
  experiment.algo.drop_limit = 1000;
  experiment.run.updates = 1000000;  // how many there are before the first row is seen, the machine's load decides
  TemporaryFolder folder;
  Recorder recorder;
  recorder.on_update = [&](int64_t update) { dead = update >= 1; };
  // The next update may have begun when the first one's row is seen; from then on no reward differs.
  const RunSummary summary = run_experiment({experiment, folder.path(), {}, {}}, recorder, stop);
  CHECK(summary.interrupted);
  double drawn = 0.0;
  for (const auto& [update, metrics] : recorder.rows)
    if (update > 0) drawn += metrics.at("groups/drawn");
  CHECK(static_cast<double>(load_checkpoint(summary.checkpoint).state->next_prompt) == drawn);
}

TEST_CASE("the reference is the weights before the first update, and a resumed run has the same") {
  const std::string kl = GENERATE("k1", "k2", "k3");
  CAPTURE(kl);
  Experiment experiment = tiny_experiment(false);
  use_task(experiment, "first-is-two-" + kl, first_is_two);
  experiment.eval.every = 0;
  experiment.run.updates = 3;
  experiment.warmstart.steps = 3;
  experiment.warmstart.batch = 4;
  experiment.warmstart.cache = false;
  experiment.algo.kl = kl;
  experiment.algo.kl_coefficient = 0.1;
  TemporaryFolder folder;
  const Outcome outcome = run_tiny(experiment, folder.path());
  CHECK(outcome.seen.rows[1].second.at("kl/reference") == 0.0);
  CHECK(outcome.seen.rows[1].second.at("kl/reference_k3") == 0.0);
  CHECK(outcome.seen.rows[3].second.at("kl/reference_k3") > 0.0);
  CHECK(fs::exists(folder.path() / "reference" / "model.safetensors"));
  check_resume(experiment);
}

TEST_CASE("a reference that is missing, or of another model, is refused with its path") {
  Experiment experiment = tiny_experiment(false);
  experiment.eval.every = 0;
  experiment.algo.kl = "k2";
  experiment.algo.kl_coefficient = 0.1;
  TemporaryFolder folder, other;
  const Outcome first = run_tiny(experiment, folder.path(), {.stop_after = 1});
  fs::rename(folder.path() / "reference", folder.path() / "elsewhere");
  CHECK_THROWS_WITH(run_tiny(experiment, folder.path(), {.resume = first.summary.checkpoint}),
                    Catch::Contains("reference: the run's reference policy cannot be used"));
  fs::rename(folder.path() / "elsewhere", folder.path() / "reference");

  experiment.algo.reference = first.summary.checkpoint.string();
  experiment.seed = 6;
  const Outcome named = run_tiny(experiment, other.path(), {.stop_after = 1});
  CHECK(named.seen.rows[1].second.at("kl/reference_k3") > 0.0);  // a fresh model is not the other run's
  CHECK(load_model(other.path() / "reference").parameters.fingerprints() ==
        load_checkpoint(first.summary.checkpoint).parameters.fingerprints());
  experiment.model.config.width = 32;
  CHECK_THROWS_WITH(run_tiny(experiment, other.path()), Catch::Contains("of other sizes than the run's"));
}

TEST_CASE("reinforce with groups of one: the moving baseline is in the checkpoint") {
  Experiment experiment = tiny_experiment(false);
  experiment.eval.every = 0;
  experiment.run.updates = 3;
  experiment.algo.advantage = "reinforce";
  experiment.algo.group_size = 1;
  experiment.algo.prompts = 8;
  check_resume(experiment);
  TemporaryFolder folder;
  const Outcome outcome = run_tiny(experiment, folder.path());
  CHECK(outcome.seen.rows[2].second.contains("advantage/baseline"));
  CHECK(load_checkpoint(outcome.summary.checkpoint).state->extra.contains(std::string(kLearnerState) + "baseline"));
}

TEST_CASE("the learner's state among the texts of a checkpoint, and back") {
  RunState state;
  add_learner_state(state, {{"baseline", "0x1p-1"}, {"correction", ""}});
  CHECK(state.extra == std::map<std::string, std::string>{{"learner.baseline", "0x1p-1"}});
  CHECK(learner_state(state) == std::map<std::string, std::string>{{"baseline", "0x1p-1"}});
}

}  // namespace
}  // namespace motley::actors
