// Samplers that join a run over the network, here from other threads of the same process.
#include <set>

#include "actors/remote/join_learner.h"
#include "actors/remote/join_loop.h"
#include "actors/trajectory_file.h"
#include "tests/actors/listening_run.h"

namespace motley::actors {
namespace {

void check_ids_are_unique(const std::filesystem::path& folder, int64_t updates) {
  std::set<std::pair<uint64_t, uint32_t>> ids;
  int64_t samples = 0;
  for (int64_t update = 1; update <= updates; ++update)
    for (const algos::Trajectory& sample : read_trajectories(trajectory_path(folder, update), 1000000)) {
      ids.emplace(sample.group, sample.sample);
      ++samples;
    }
  CHECK(samples == updates * 8);
  CHECK(static_cast<int64_t>(ids.size()) == samples);
}

}  // namespace

TEST_CASE("a run without samplers of its own trains on those that join, and ends them") {
  constexpr int64_t kUpdates = 100;  // long enough for the slower of the two to come
  Running run(remote_experiment(kUpdates));
  Joined first({.address = run.address, .group = "one", .patience = std::chrono::seconds(60)}),
      second({.address = run.address, .patience = std::chrono::seconds(60)});
  const RunSummary summary = run.result.get();
  CHECK(summary.updates == kUpdates);
  CHECK(first.end.get() == JoinEnd::run_over);
  CHECK(second.end.get() == JoinEnd::run_over);
  CHECK(run.seen.count("joins") == 2);
  for (const algos::Metrics& row : run.seen.rows) {
    if (!row.contains("kl/sampler_trainer")) continue;
    CHECK(row.at("samples/failed") == 0.0);
  }
  check_ids_are_unique(run.folder.path(), kUpdates);
}

TEST_CASE("a run whose steps a learner of another process computes ends it with its last update") {
  Experiment experiment = remote_experiment(3);
  experiment.samplers[0].replicas = 1;
  experiment.run.learner = "joins";
  Running run(experiment);
  StopRequest stop{0};
  const LearnerRequest request{.address = run.address, .experiment_of = [&](const std::string&) { return experiment; }};
  const JoinEnd end = run_learner(
      request, [](const std::string&) {}, stop);
  CHECK(end == JoinEnd::run_over);
  CHECK(run.result.get().updates == 3);
  CHECK(run.seen.count("learner (") == 1);
  double steps = 0;  // a batch of equal rewards asks for none
  for (const algos::Metrics& row : run.seen.rows) steps += row.contains("grad_norm") && row.at("grad_norm") > 0 ? 1 : 0;
  check_ids_are_unique(run.folder.path(), 3);
  const Checkpoint last = load_checkpoint(run.folder / "checkpoints/step-3");
  CHECK(last.state->version == 3);
  CHECK(last.optimizer->numbers.at("adam.steps") == steps);
}

TEST_CASE("a run that no learner joins stops with the state that it holds") {
  Experiment experiment = remote_experiment(3);
  experiment.samplers[0].replicas = 1;
  experiment.run.learner = "joins";
  experiment.run.learner_patience = 0;
  Running run(experiment);
  CHECK_THROWS_WITH(run.result.get(), Catch::Matchers::Contains("no learner has come for 0 s") &&
                                          Catch::Matchers::Contains("motley run --resume"));
  CHECK(load_checkpoint(run.folder / "checkpoints/step-0").state->version == 0);
}

TEST_CASE("a sampler that leaves hands its sessions over: nothing fails, nothing is lost") {
  Running run(remote_experiment(12));
  Joined stays({.address = run.address});
  {
    Joined leaves({.address = run.address});
    run.seen.wait_for_update(3);
    leaves.stop = 1;
    CHECK(leaves.end.get() == JoinEnd::left);
  }
  CHECK(run.result.get().updates == 12);
  CHECK(run.seen.count(" left; ") == 1);
  CHECK(run.seen.count("was lost") == 0);
  for (const algos::Metrics& row : run.seen.rows)
    if (row.contains("samples/failed")) CHECK(row.at("samples/failed") == 0.0);
  check_ids_are_unique(run.folder.path(), 12);
}

TEST_CASE("who does not fit the run is refused, with both sides' values") {
  Running run(remote_experiment(1000));
  StopRequest stop{0};
  const auto refusal = [&](const std::string& group, const std::string& model) -> std::string {
    JoinRequest request;
    request.address = run.address;
    request.group = group;
    request.model = model;
    try {
      run_sampler(
          request, [](const std::string&) {}, stop);
    } catch (const JoinRefused& error) {
      return error.what();
    }
    return "joined";
  };
  CHECK(refusal("two", "") == "the run refuses this sampler: there is no sampler group two: this run has one");
  const std::string model = refusal("", "{\"hidden_size\": 7}");
  CHECK(model.find("its model is {\"hidden_size\": 7}, this run's is {") != std::string::npos);
}

TEST_CASE("a role that the run does not know, or does not wait for, is refused") {
  Running run(remote_experiment(1000));
  StopRequest stop{0};
  const auto refusal = [&](const std::string& role) -> std::string {
    Joining joining;
    joining.address = run.address;
    joining.hello.role = role;
    try {
      join_run(
          joining, [](const std::string&) {}, stop);
    } catch (const JoinRefused& error) {
      return error.what();
    }
    return "joined";
  };
  CHECK(refusal("learner") ==
        "the run refuses this learner: this run computes its own steps: with run.learner = \"joins\" it waits for a "
        "learner");
  CHECK(refusal("cook") ==
        "the run refuses this cook: there is no role of that name: a sampler, a worker, a "
        "learner or an evaluator may join");
}

TEST_CASE("a sampler's patience with a run that is not there ends") {
  StopRequest stop{0};
  const JoinRequest request{.address = {"127.0.0.1", 1}, .patience = std::chrono::seconds(0)};
  CHECK_THROWS_WITH(run_sampler(
                        request, [](const std::string&) {}, stop),
                    Catch::Matchers::StartsWith("no run at 127.0.0.1:1 for 0 s: "));
}

}  // namespace motley::actors
