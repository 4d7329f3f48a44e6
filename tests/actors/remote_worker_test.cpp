// Workers that join a run over the network, here from other threads of the same process.
#include "actors/remote/join_worker.h"
#include "actors/trajectory_file.h"
#include "tests/actors/interacting_task.h"
#include "tests/actors/listening_run.h"

namespace motley::actors {
namespace {

/// A run with a sampler and one worker of its own, whose episodes of one task are interactions, and of the other not.
Experiment mixed_experiment(const std::string& task) {
  Experiment experiment = tiny_experiment(true);
  const TaskOptions arithmetic = experiment.tasks[0];
  use_interacting_task(experiment, task);
  experiment.tasks.push_back(arithmetic);
  experiment.run.workers = 1;
  experiment.run.updates = 8;
  experiment.run.keep_trajectories = "all";
  experiment.eval.every = 0;
  experiment.eval.prompts = 1;
  return experiment;
}

Joined worker_of(const Running& run, const Experiment& experiment, int64_t slots) {
  return Joined([=, address = run.address](const Joined::Say& say, StopRequest& stop) {
    return run_worker({.address = address,
                       .slots = slots,
                       .patience = std::chrono::seconds(20),
                       .parse = [&](const std::string&) { return experiment; }},
                      say, stop);
  });
}

}  // namespace

TEST_CASE("workers that join make a run's calls, come and go, and change no reward") {
  const Experiment experiment = mixed_experiment("joined_interacts");
  Running run(experiment);
  Joined stays = worker_of(run, experiment, 4);
  {
    Joined leaves = worker_of(run, experiment, 2);
    run.seen.wait_for_update(3);
    leaves.stop = 1;
    CHECK(leaves.end.get() == JoinEnd::left);
  }
  CHECK(run.result.get().updates == 8);
  CHECK(stays.end.get() == JoinEnd::run_over);
  CHECK(run.seen.count(" joins") == 2);
  CHECK(run.seen.count(" left; its calls are made elsewhere, its interactions begin anew") == 1);
  CHECK(run.seen.count("was lost") == 0);
  const auto tasks = make_tasks(experiment, experiment.seed);
  const envs::Tokenizer tokenizer = tasks->tokenizer();
  std::map<std::string, int> samples;
  for (int64_t update = 1; update <= 8; ++update)
    for (const algos::Trajectory& t : read_trajectories(trajectory_path(run.folder.path(), update), tokenizer.size())) {
      ++samples[t.task];
      CHECK(t.failure.empty());
      if (t.task != "arithmetic") {
        CHECK((t.ending == "submitted" ? t.reward == 1.0 : t.reward <= 0.25));
        continue;
      }
      std::vector<int32_t> reply;
      for (size_t i = 0; i < t.tokens.size(); ++i)
        if (t.loss_mask[i] == 1) reply.push_back(t.tokens[i]);
      const bool ended = reply.back() == tokenizer.eos();
      if (ended) reply.pop_back();
      const envs::Problem problem = tasks->training(t.group).problem;
      CHECK(t.reward == tasks->entries()[1].task->reward(problem, tokenizer.decode(reply), ended).value);
    }
  CHECK(samples.size() == 2);
}

TEST_CASE("a worker with other data is refused, and one that lacks something says what") {
  Experiment experiment = mixed_experiment("joined_refused");
  experiment.run.updates = 100000;
  Running run(experiment);
  Experiment other = experiment;
  other.tasks[1].options["digits"] = "2";
  CHECK_THROWS_WITH(worker_of(run, other, 1).end.get(),
                    "the run refuses this worker: task arithmetic gives other problems there: is its data the same?");
  other = experiment;
  use_interacting_task(other, "joined_lacks")->lacking = "no sandboxes here";
  CHECK_THROWS_WITH(worker_of(run, other, 1).end.get(), "no sandboxes here");
  run.stop = 1;
  run.result.get();
  CHECK(run.seen.count("it cannot make calls into the tasks: no sandboxes here") == 1);
  CHECK(run.seen.count("task arithmetic gives other problems there") == 1);
}

}  // namespace motley::actors
