// Whole runs with a tiny model.
#include "actors/run.h"

#include <set>

#include "actors/trajectory_file.h"
#include "tests/actors/tiny_run.h"

namespace motley::actors {
namespace {

TEST_CASE("lock-step: metrics repeat byte for byte, with any number of replicas and threads") {
  Experiment experiment = tiny_experiment(false);
  experiment.eval.profiles = {"bf16", "trainer"};
  TemporaryFolder folder;
  const Outcome first = run_tiny(experiment, folder.path());
  REQUIRE(first.seen.rows.size() == 3);
  for (size_t i = 0; i < 3; ++i) {
    CHECK(first.seen.rows[i].first == static_cast<int64_t>(i));
    CHECK(first.seen.rows[i].second.contains("eval/pass_at_1"));
    CHECK(first.seen.rows[i].second.contains("eval/trainer/pass_at_4"));
    CHECK(first.seen.rows[i].second.at("eval/version") == static_cast<double>(i));
  }
  CHECK(first.seen.rows[2].second.at("samples/count") == 8.0);
  CHECK(first.seen.rows[2].second.contains("time/update"));
  CHECK(first.summary.updates == 2);
  CHECK_FALSE(first.summary.interrupted);
  CHECK(std::filesystem::exists(first.summary.checkpoint / "model.safetensors"));
  REQUIRE(first.summary.groups.size() == 1);
  CHECK(first.summary.groups[0].share == 1.0);

  experiment.samplers[0].replicas = 3;
  experiment.samplers[0].max_sequences = 2;
  experiment.run.threads = 1;
  TemporaryFolder other;
  const Outcome second = run_tiny(experiment, other.path());
  CHECK(clockless(first.seen.rows) == clockless(second.seen.rows));
  CHECK(load_checkpoint(first.summary.checkpoint).parameters.fingerprints() ==
        load_checkpoint(second.summary.checkpoint).parameters.fingerprints());

  experiment.seed = 6;
  TemporaryFolder third;
  CHECK(clockless(run_tiny(experiment, third.path()).seen.rows) != clockless(first.seen.rows));
}

TEST_CASE("bitwise: with the trainer's own profile the KL is exactly 0") {
  const std::string profile = GENERATE("fp32", "bf16", "fp16");
  const double top_p = GENERATE(1.0, 0.9);
  CAPTURE(profile, top_p);
  Experiment experiment = tiny_experiment(false);
  experiment.trainer.profile = profile;
  experiment.sampling.top_p = top_p;
  experiment.eval.every = 0;
  experiment.samplers[0].max_sequences = 7;
  TemporaryFolder folder;
  const Outcome outcome = run_tiny(experiment, folder.path());
  for (size_t update = 1; update < outcome.seen.rows.size(); ++update) {
    const algos::Metrics& metrics = outcome.seen.rows[update].second;
    CHECK(metrics.at("kl/sampler_trainer") == 0.0);
    CHECK(metrics.at("ratio/max") == 1.0);
    CHECK(metrics.at("staleness/max") == 0.0);
  }
}

TEST_CASE("two samplers of one format and seed answer differently, and the same again in the next run") {
  Experiment experiment = tiny_experiment(false);
  experiment.run.updates = 1;
  experiment.run.keep_trajectories = "all";
  experiment.sampling.max_tokens = 12;
  experiment.algo.group_size = 8;
  experiment.samplers[0].replicas = 2;
  experiment.samplers.push_back(experiment.samplers[0]);
  experiment.samplers[1].name = "two";
  const auto answers = [&] {
    TemporaryFolder folder;
    const Outcome outcome = run_tiny(experiment, folder.path());
    std::set<std::string> samplers;
    std::vector<std::vector<int32_t>> tokens;
    const int64_t vocabulary = load_checkpoint(outcome.summary.checkpoint).config.vocabulary;
    for (const algos::Trajectory& t : read_trajectories(trajectory_path(folder.path(), 1), vocabulary)) {
      samplers.insert(t.sampler);
      tokens.push_back(t.records.tokens);
    }
    CHECK(samplers == std::set<std::string>{"one", "two"});
    return tokens;
  };
  const auto first = answers();
  REQUIRE(first.size() == 16);
  // Short answers may coincide; with one seed for both samplers, or for all samples of a prompt, most would.
  CHECK(std::set<std::vector<int32_t>>(first.begin(), first.end()).size() > 12);
  CHECK(answers() == first);
}

TEST_CASE("the prompts' tokens are computed, or shared between the samples of one prompt") {
  Experiment experiment = tiny_experiment(false);
  experiment.run.keep_trajectories = "all";
  TemporaryFolder folder;
  const Outcome outcome = run_tiny(experiment, folder.path());
  const algos::Metrics& metrics = outcome.seen.rows.at(1).second;
  const int64_t vocabulary = load_checkpoint(outcome.summary.checkpoint).config.vocabulary;
  double given = 0;
  for (const algos::Trajectory& t : read_trajectories(trajectory_path(folder.path(), 1), vocabulary))
    given += static_cast<double>(t.tokens.size() - t.records.size());
  const double computed = metrics.at("group/one/time/prefill_rows"), shared = metrics.at("group/one/time/shared_share");
  CHECK(shared > 0.0);
  CHECK(computed == Approx(given * (1.0 - shared)));
  CHECK(metrics.at("group/one/time/rows_per_step") > 1.0);
}

TEST_CASE("several groups share a lock-step batch by their replicas") {
  Experiment experiment = tiny_experiment(false);
  experiment.algo.prompts = 10;
  SamplerGroupOptions second = experiment.samplers[0];
  second.name = "two";
  second.profile = "h100-fp8";
  second.price_per_hour = 2.0;
  experiment.samplers.push_back(second);
  TemporaryFolder folder;
  const Outcome outcome = run_tiny(experiment, folder.path());
  const algos::Metrics& metrics = outcome.seen.rows.at(1).second;
  CHECK(metrics.at("group/one/share") == Approx(0.5).margin(0.05));
  CHECK(metrics.at("group/one/kl/sampler_trainer") == 0.0);
  CHECK(metrics.at("group/two/kl/sampler_trainer") != 0.0);
  const double seconds = metrics.at("time/update");
  CHECK(metrics.at("cost/update") == Approx(2.0 * seconds / 3600.0));  // the other group has no price
  const double tokens = metrics.at("group/two/time/tokens_per_second") * seconds;
  CHECK(metrics.at("group/two/cost/per_million_tokens") == Approx(metrics.at("cost/update") / tokens * 1e6));
  CHECK(metrics.at("group/one/cost/per_million_tokens") == 0.0);
  double cost = 0.0;  // from when its replica joined; the end of the run comes after the last row
  for (const auto& [update, row] : outcome.seen.rows) cost += row.at("cost/update");
  CHECK(outcome.summary.groups[1].cost >= cost);
  CHECK(outcome.summary.groups[1].cost <= 2.0 * outcome.summary.seconds / 3600.0);
  CHECK(outcome.summary.cost_per_update == Approx(outcome.summary.groups[1].cost / 2.0));
  CHECK(outcome.summary.groups[1].cost_per_million_tokens > 0.0);
  CHECK(metrics.at("group/two/time/rows_per_step") >= 1.0);
  CHECK(outcome.summary.groups[1].emulated);
  CHECK_FALSE(outcome.summary.groups[0].emulated);
}

TEST_CASE("asynchronous: the run ends, its rows stand in order, every evaluation has one") {
  Experiment experiment = tiny_experiment(true);
  experiment.run.updates = 6;
  experiment.eval.every = 2;
  SamplerGroupOptions second = experiment.samplers[0];
  second.name = "two";
  second.profile = "h100-fp8";
  experiment.samplers.push_back(second);
  TemporaryFolder folder;
  const Outcome outcome = run_tiny(experiment, folder.path());
  REQUIRE(outcome.seen.rows.size() == 7);
  std::vector<double> evaluated;
  for (size_t i = 0; i < outcome.seen.rows.size(); ++i) {
    const auto& [update, metrics] = outcome.seen.rows[i];
    CHECK(update == static_cast<int64_t>(i));
    if (metrics.contains("eval/version")) evaluated.push_back(metrics.at("eval/version"));
    if (i == 0) continue;
    CHECK(metrics.at("samples/count") == 8.0);
    CHECK(metrics.at("staleness/mean") <= metrics.at("staleness/max"));
    CHECK(metrics.at("staleness/dropped") == 0.0);
  }
  CHECK(evaluated == std::vector<double>{0, 2, 4, 6});
  CHECK(outcome.summary.groups[0].share + outcome.summary.groups[1].share == Approx(1.0));
}

TEST_CASE("trajectories are kept as asked for") {
  for (const auto& [keep, files] :
       std::vector<std::pair<std::string, size_t>>{{"all", 3}, {"last 2", 2}, {"none", 0}}) {
    Experiment experiment = tiny_experiment(false);
    experiment.run.updates = 3;
    experiment.run.keep_trajectories = keep;
    TemporaryFolder folder;
    run_tiny(experiment, folder.path());
    size_t found = 0;
    if (std::filesystem::exists(folder.path() / "trajectories"))
      for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path() / "trajectories"))
        ++found;
    CHECK(found == files);
  }
}

TEST_CASE("stop and resume in lock-step give the bits of the undisturbed run") {
  Experiment experiment = tiny_experiment(false);
  experiment.run.updates = 4;
  experiment.algo.minibatches = 2;
  experiment.eval.every = 2;
  const bool imposed = GENERATE(false, true);
  if (imposed) experiment.samplers[0].staleness = std::pair<int64_t, int64_t>{0, 2};
  TemporaryFolder whole_folder, halves_folder;
  const Outcome whole = run_tiny(experiment, whole_folder.path());
  const Outcome first = run_tiny(experiment, halves_folder.path(), {.stop_after = 2});
  CHECK(first.summary.interrupted);
  CHECK(first.summary.updates == 2);
  const Outcome second = run_tiny(experiment, halves_folder.path(), {.resume = first.summary.checkpoint});
  CHECK(second.seen.first_update == 3);
  CHECK_FALSE(second.summary.interrupted);
  auto rows = first.seen.rows;
  rows.insert(rows.end(), second.seen.rows.begin(), second.seen.rows.end());
  CHECK(clockless(rows) == clockless(whole.seen.rows));
  CHECK(load_checkpoint(second.summary.checkpoint).parameters.fingerprints() ==
        load_checkpoint(whole.summary.checkpoint).parameters.fingerprints());
  if (imposed) {
    double oldest = 0;
    for (const auto& [update, metrics] : whole.seen.rows)
      if (update > 0) oldest = std::max(oldest, metrics.at("staleness/max"));
    CHECK(oldest > 0.0);
  }
}

TEST_CASE("a resume of a finished run has nothing to do") {
  const Experiment experiment = tiny_experiment(false);
  TemporaryFolder folder;
  const Outcome first = run_tiny(experiment, folder.path());
  const Outcome again = run_tiny(experiment, folder.path(), {.resume = first.summary.checkpoint});
  CHECK(again.seen.rows.empty());
  CHECK(again.summary.updates == 2);
  CHECK(again.summary.checkpoint == first.summary.checkpoint);
}

TEST_CASE("an asynchronous run resumes with new attempts") {
  Experiment experiment = tiny_experiment(true);
  experiment.run.updates = 4;
  TemporaryFolder folder;
  const Outcome first = run_tiny(experiment, folder.path(), {.stop_after = 2});
  CHECK(load_checkpoint(first.summary.checkpoint).state->attempt == 1);
  CHECK(load_checkpoint(first.summary.checkpoint).state->next_prompt >= 4);
  const Outcome second = run_tiny(experiment, folder.path(), {.resume = first.summary.checkpoint});
  REQUIRE(second.seen.rows.size() == 2);
  CHECK(second.seen.rows[0].first == 3);
  CHECK(load_checkpoint(second.summary.checkpoint).state->attempt == 2);
}

TEST_CASE("a stop is answered with a checkpoint") {
  const bool async = GENERATE(false, true);
  Experiment experiment = tiny_experiment(async);
  experiment.run.updates = 1000000;
  experiment.eval.every = 0;
  TemporaryFolder folder;
  Recorder recorder;
  StopRequest stop{0};
  recorder.on_update = [&](int64_t update) { stop = update >= 3; };
  const RunSummary summary = run_experiment({experiment, folder.path(), {}, {}}, recorder, stop);
  CHECK(summary.interrupted);
  CHECK(summary.updates >= 3);
  CHECK(load_checkpoint(summary.checkpoint).state->version == static_cast<uint64_t>(summary.updates));
}

TEST_CASE("an observer that throws ends the run") {
  TemporaryFolder folder;
  Recorder recorder;
  StopRequest stop{0};
  recorder.on_update = [](int64_t) { throw std::runtime_error("disk full"); };
  CHECK_THROWS_WITH(run_experiment({tiny_experiment(true), folder.path(), {}, {}}, recorder, stop), "disk full");
}

}  // namespace
}  // namespace motley::actors
