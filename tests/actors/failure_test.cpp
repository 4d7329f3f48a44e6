// What happens when a part of the fleet fails.
#include <algorithm>
#include <atomic>
#include <limits>

#include "kernels/device_memory.h"
#include "tests/actors/tiny_run.h"

namespace motley::actors {
namespace {

TEST_CASE("a sampler that dies once: its sessions go on from their tokens, the run finishes") {
  const bool async = GENERATE(false, true);
  const int64_t replicas = GENERATE(1, 2);
  CAPTURE(async, replicas);
  Experiment experiment = tiny_experiment(async);
  experiment.run.updates = 4;
  experiment.run.keep_trajectories = "all";
  experiment.sampling.max_tokens = 40;  // longer than a chunk
  experiment.samplers[0].replicas = replicas;
  std::atomic<bool> died{false};
  TemporaryFolder folder;
  const Outcome outcome =
      run_tiny(experiment, folder.path(),
               {.hooks = {.before_step = [&](const std::string& group, uint64_t replica, int64_t step) {
                  if (group == "one" && replica == 0 && step == 20 && !died.exchange(true))
                    throw std::runtime_error("out of power");
                }}});
  CHECK(died);
  CHECK(outcome.summary.updates == 4);
  REQUIRE(outcome.seen.notes.size() == 1);
  CHECK(outcome.seen.notes[0].find("sampler one/0") != std::string::npos);
  CHECK(outcome.seen.notes[0].find("out of power") != std::string::npos);
  CHECK((outcome.seen.notes[0].find("bit-equal") != std::string::npos) == !async);
  for (size_t i = 1; i < outcome.seen.rows.size(); ++i) CHECK(outcome.seen.rows[i].second.at("samples/failed") == 0.0);
}

TEST_CASE("a sampler that keeps dying stops the run with the first cause") {
  const Experiment experiment = tiny_experiment(true);
  TemporaryFolder folder;
  CHECK_THROWS_WITH(run_tiny(experiment, folder.path(),
                             {.hooks = {.before_step = [](const std::string&, uint64_t,
                                                          int64_t) { throw std::runtime_error("broken"); }}}),
                    Catch::Contains("broken"));
}

TEST_CASE("a device without enough memory stops the run, which says what was asked for, held and free") {
  Experiment experiment = tiny_experiment(false);
  SECTION("of the trainer") { experiment.trainer.device = "emulated"; }
  SECTION("of a sampler") { experiment.samplers[0].device = "emulated"; }
  const kernels::MemoryUse before = kernels::emulated::memory_use();
  kernels::emulated::set_total_memory(before.in_use + 2000);
  TemporaryFolder folder;
  CHECK_THROWS_WITH(run_tiny(experiment, folder.path()), Catch::Contains("emulated: out of memory: ") &&
                                                             Catch::Contains(" bytes asked for; ") &&
                                                             Catch::Contains(" free of "));
  kernels::emulated::set_total_memory(before.total);
}

TEST_CASE("a session that lost two samplers fails and is counted; the others go on") {
  Experiment experiment = tiny_experiment(false);
  experiment.run.updates = 3;
  experiment.samplers[0].replicas = 2;
  std::atomic<int> deaths{0};
  TemporaryFolder folder;
  // Both deaths hit the first batch: every session of the second to die has lost a replica already, or waits for one.
  const Outcome outcome =
      run_tiny(experiment, folder.path(), {.hooks = {.before_step = [&](const std::string&, uint64_t replica, int64_t) {
                                             if (replica == 0 && deaths < 2) {
                                               ++deaths;
                                               throw std::runtime_error("broken");
                                             }
                                           }}});
  CHECK(outcome.summary.updates == 3);
  CHECK(deaths == 2);
  CHECK(outcome.seen.notes.size() == 2);
}

TEST_CASE("a reward that throws fails its own episode, and is counted") {
  Experiment experiment = tiny_experiment(GENERATE(false, true));
  static std::atomic<int> calls;
  static bool registered = false;
  calls = 0;
  if (!std::exchange(registered, true)) {
    use_task(experiment, "sometimes_throws", [](std::string_view reply) -> envs::Reward {
      const int call = ++calls;
      if (call % 4 == 1) throw std::runtime_error("scorer broke");
      if (call % 4 == 2) return {std::numeric_limits<double>::quiet_NaN(), {}, false};
      return {reply.starts_with("2") ? 1.0 : 0.0, {}, false};
    });
  }
  experiment.tasks = {{.env = "sometimes_throws", .weight = 1.0, .options = {}}};
  experiment.eval.every = 0;
  experiment.run.updates = 3;
  TemporaryFolder folder;
  const Outcome outcome = run_tiny(experiment, folder.path());
  CHECK(outcome.summary.updates == 3);
  double failed = 0;
  for (const auto& [update, metrics] : outcome.seen.rows)
    if (update > 0) failed += metrics.at("samples/failed");
  CHECK(failed > 0);
}

TEST_CASE("a reward that hangs fails its own episode, and its worker comes back") {
  Experiment experiment = tiny_experiment(false);
  experiment.eval.every = 0;
  experiment.eval.prompts = 1;
  static std::atomic<int> calls;
  static std::atomic<bool> released;
  calls = 0;
  released = false;
  use_task(experiment, "hangs_once", [](std::string_view) -> envs::Reward {
    constexpr int kEvaluation = 4;  // samples of the evaluation before the first update
    if (++calls == kEvaluation + 1)
      while (!released) std::this_thread::yield();
    return {1.0, {}, false};
  });
  TemporaryFolder folder;
  Recorder recorder;
  StopRequest stop{0};
  FleetHooks hooks;
  hooks.score_limit = std::chrono::milliseconds(2000);
  recorder.on_update = [&](int64_t update) { released = update >= 1; };
  run_fleet({experiment, folder.path(), {}, {}}, recorder, stop, hooks);
  CHECK(recorder.rows.at(1).second.at("samples/failed") == 1.0);
  CHECK(recorder.rows.at(2).second.at("samples/failed") == 0.0);
}

TEST_CASE("a reward that always throws stops the run and says why") {
  Experiment experiment = tiny_experiment(false);
  use_task(experiment, "always_throws",
           [](std::string_view) -> envs::Reward { throw std::runtime_error("no scorer"); });
  TemporaryFolder folder;
  CHECK_THROWS_WITH(run_tiny(experiment, folder.path()),
                    Catch::Contains("learner: every episode of update 1 failed") && Catch::Contains("no scorer"));
}

class BrokenProblems final : public envs::Task {
 public:
  std::vector<std::string> symbols() const override { return {"1", "2", "="}; }
  envs::Problem problem(uint64_t, uint64_t, bool held_out) const override {
    constexpr int kLookedAt = 256;  // before the run, by check_prompts
    if (!held_out && ++asked_ > kLookedAt) throw std::runtime_error("no more problems");
    return {"1=", "2", "2"};
  }
  std::optional<uint64_t> epoch_size(bool) const override { return std::nullopt; }
  envs::Reward reward(const envs::Problem&, std::string_view, bool) const override { return {}; }
  bool has_demonstrations() const override { return false; }

 private:
  mutable std::atomic<int> asked_{0};
};

TEST_CASE("an exception in any actor ends the run with the actor's name and the text") {
  Experiment experiment = tiny_experiment(false);
  envs::register_task({"no_problems", "", {}, [](const envs::Options&) { return std::make_unique<BrokenProblems>(); }});
  experiment.tasks = {{.env = "no_problems", .weight = 1.0, .options = {}}};
  TemporaryFolder folder;
  CHECK_THROWS_AS(run_tiny(experiment, folder.path()), RunError);
  CHECK_THROWS_WITH(run_tiny(experiment, folder.path()), "environment: no more problems");
}

TEST_CASE("no sample that is too old is trained on, whether the run can go on or stops") {
  Experiment experiment = tiny_experiment(true);
  experiment.run.updates = 12;
  experiment.eval.every = 0;
  experiment.run.max_staleness = 1;
  experiment.run.concurrency = 16;  // two batches: a queue of one
  TemporaryFolder folder;
  Recorder recorder;
  StopRequest stop{0};
  try {
    const RunSummary summary = run_experiment({experiment, folder.path(), {}, {}}, recorder, stop);
    CHECK(summary.updates == 12);
  } catch (const RunError& error) {  // new weights may reach the sampler late
    CHECK_THAT(error.what(), Catch::Contains("older than run.max_staleness"));
  }
  CHECK(recorder.rows.size() >= 2);
  for (const auto& [update, metrics] : recorder.rows)
    if (update > 0) CHECK(metrics.at("staleness/max") <= 1.0);
}

TEST_CASE("age is checked when the learner takes a sample: what waits for a slow learner grows too old") {
  Experiment experiment = tiny_experiment(true);
  experiment.run.updates = 7;
  experiment.eval.every = 0;
  experiment.algo.epochs = 16;      // a slow learner
  experiment.run.concurrency = 64;  // eight batches, all decoded at once with the first weights
  experiment.samplers[0].max_sequences = 64;
  TemporaryFolder folder;
  std::optional<std::filesystem::path> resume;
  if (GENERATE(false, true)) resume = run_tiny(experiment, folder.path(), {.stop_after = 1}).summary.checkpoint;
  CAPTURE(resume.has_value());

  Experiment limited = experiment;
  limited.run.max_staleness = 1;
  CHECK_THROWS_WITH(run_tiny(limited, folder.path(), {.resume = resume}),
                    Catch::Contains("older than run.max_staleness"));
  std::vector<double> ages;
  for (const auto& [update, metrics] : run_tiny(experiment, folder.path(), {.resume = resume}).seen.rows)
    if (update > 0) ages.push_back(metrics.at("staleness/max"));
  CHECK(ages.front() == 0.0);  // the queue of the process before is not taken over
  CHECK(*std::max_element(ages.begin(), ages.end()) > 1.0);
}

TEST_CASE("imposed staleness beyond the limit stops the run") {
  Experiment experiment = tiny_experiment(false);
  experiment.run.updates = 6;
  experiment.samplers[0].staleness = std::pair<int64_t, int64_t>{3, 3};
  experiment.run.max_staleness = 1;
  TemporaryFolder folder;
  CHECK_THROWS_WITH(run_tiny(experiment, folder.path()), Catch::Contains("older than run.max_staleness"));
}

}  // namespace
}  // namespace motley::actors
