// Routing in runs of the real actors.
#include <array>
#include <atomic>

#include "tests/actors/tiny_run.h"

namespace motley::actors {

TEST_CASE("one of three samplers dies: the others take its sessions; it comes back and gets work again") {
  Experiment experiment = tiny_experiment(false);
  experiment.run.updates = 4;
  experiment.algo.prompts = 3;
  experiment.samplers[0].replicas = 3;
  std::atomic<bool> died{false};
  std::array<std::atomic<int>, 3> steps_after{};
  TemporaryFolder folder;
  const Outcome outcome =
      run_tiny(experiment, folder.path(), {.hooks = {.before_step = [&](const std::string&, uint64_t replica, int64_t) {
                                             if (replica == 1 && !died.exchange(true))
                                               throw std::runtime_error("out of power");
                                             if (died) ++steps_after.at(replica);
                                           }}});
  CHECK(outcome.summary.updates == 4);
  CHECK(outcome.seen.notes.size() == 1);
  for (const std::atomic<int>& steps : steps_after) CHECK(steps > 0);
  for (size_t i = 1; i < outcome.seen.rows.size(); ++i) CHECK(outcome.seen.rows[i].second.at("samples/failed") == 0.0);
}

TEST_CASE(
    "a sampler that has work and says nothing is given up: its sessions go on elsewhere, another takes its place") {
  Experiment experiment = tiny_experiment(true);
  experiment.run.updates = 1000000;
  experiment.eval.every = 1000000;
  experiment.samplers[0].replicas = 2;
  experiment.samplers[0].max_sequences = 16;
  std::atomic<bool> hung{false}, given_up{false}, woken{false};
  TemporaryFolder folder;
  RunSetup setup;
  setup.hooks.hang_limit = std::chrono::milliseconds(100);
  setup.hooks.before_step = [&](const std::string&, uint64_t replica, int64_t) {
    if (replica != 1 || hung.exchange(true)) return;
    for (int i = 0; i < 1000 && !given_up; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    woken = true;
  };
  Outcome outcome;
  StopRequest stop{0};
  int64_t after = 0;  // updates since it woke
  outcome.seen.on_update = [&](int64_t) {
    given_up = !outcome.seen.notes.empty();
    if (woken && ++after == 20) stop = 1;
  };
  outcome.summary = run_fleet({experiment, folder.path()}, outcome.seen, stop, setup.hooks);
  CHECK(after >= 20);
  REQUIRE(outcome.seen.notes.size() == 1);
  CHECK(outcome.seen.notes[0].find("sampler one/1 was lost (it has work and has said nothing for") == 0);
  for (size_t i = 1; i < outcome.seen.rows.size(); ++i) CHECK(outcome.seen.rows[i].second.at("samples/failed") == 0.0);
}

TEST_CASE("asynchronous: every routing feeds all groups") {
  Experiment experiment = tiny_experiment(true);
  experiment.run.routing = GENERATE("capacity", "least_loaded", "round_robin");
  CAPTURE(experiment.run.routing);
  experiment.run.updates = 3;
  experiment.algo.prompts = 4;
  experiment.samplers.push_back(experiment.samplers[0]);
  experiment.samplers[1].name = "two";
  for (SamplerGroupOptions& group : experiment.samplers) group.max_sequences = 32;
  TemporaryFolder folder;
  const Outcome outcome = run_tiny(experiment, folder.path());
  CHECK(outcome.summary.updates == 3);
  for (const GroupSummary& group : outcome.summary.groups) CHECK(group.share > 0.0);
}

}  // namespace motley::actors
