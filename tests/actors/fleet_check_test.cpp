// `make fleet-check`: a real run of the actors beside a simulation that is fed with what the run measured. The
// samplers' steps are paced, so that three groups of different speeds do not share the cores of the machine, and slow
// enough that what the actors themselves take is small beside them.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <mutex>
#include <set>

#include "actors/simulation/simulation.h"
#include "actors/trajectory_file.h"
#include "tests/actors/tiny_run.h"

namespace motley::actors {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int64_t kUpdates = 30, kSkipped = 5;  // and the last update, which waits for an evaluation

/// Paces the steps of each group and measures how long they take: the pause, and the engine's own time.
class Pace {
 public:
  explicit Pace(std::map<std::string, std::chrono::microseconds> pauses) : pauses_(std::move(pauses)) {}
  void before_step(const std::string& group, int64_t step) {
    const auto begin = Clock::now();
    std::this_thread::sleep_for(pauses_.at(group));
    const auto end = Clock::now();
    const std::lock_guard lock(mutex_);
    Group& measured = groups_[group];
    measured.pauses.push_back(seconds(end - begin));
    if (step > 0) measured.steps.push_back(seconds(begin - measured.last));  // longer when the engine was idle
    measured.last = end;
  }
  double step_seconds(const std::string& group) {
    Group& measured = groups_.at(group);
    return median(measured.pauses) + median(measured.steps);
  }
  static double median(std::vector<double> values) {
    std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2), values.end());
    return values[values.size() / 2];
  }

 private:
  static double seconds(Clock::duration span) { return std::chrono::duration<double>(span).count(); }
  struct Group {
    std::vector<double> pauses, steps;
    Clock::time_point last;
  };
  std::map<std::string, std::chrono::microseconds> pauses_;
  std::map<std::string, Group> groups_;
  std::mutex mutex_;
};

using Numbers = std::map<std::string, double>;

Experiment small_fleet(uint64_t seed) {
  Experiment experiment = tiny_experiment(true);
  experiment.seed = seed;
  experiment.run.updates = kUpdates;
  experiment.run.concurrency = 192;
  experiment.run.keep_trajectories = "all";
  experiment.sampling.max_tokens = 24;
  experiment.algo.prompts = 16;
  experiment.trainer.lr = 1e-6;  // lengths stay as they are
  experiment.eval.every = 1000;
  experiment.samplers.clear();
  for (const auto& [name, share] : {std::pair{"fast", 4.0 / 7}, {"middle", 2.0 / 7}, {"slow", 1.0 / 7}}) {
    SamplerGroupOptions group;
    group.name = name;
    group.capacity = share;
    group.max_sequences = 64;
    experiment.samplers.push_back(group);
  }
  return experiment;
}

/// Means over the rows that count.
Numbers measured(const Outcome& outcome) {
  Numbers sums;
  double rows = 0;
  for (const auto& [update, metrics] : outcome.seen.rows) {
    if (update <= kSkipped || update == kUpdates) continue;
    rows += 1;
    for (const char* name : {"time/update", "time/train", "time/wait", "time/tokens_per_second", "staleness/mean"})
      sums[name] += metrics.at(name);
    for (const char* name : {"fast", "middle", "slow"})
      sums[std::string("share ") + name] += metrics.at("group/" + std::string(name) + "/share");
  }
  for (auto& [name, sum] : sums) sum /= rows;
  return sums;
}

Numbers simulated(const Experiment& experiment, const Numbers& run, Pace& pace, std::vector<int64_t> replies) {
  simulation::FleetPlan plan;
  plan.seed = experiment.seed;
  plan.run.updates = kUpdates - kSkipped - 1;
  plan.run.warmup_updates = kSkipped;
  plan.run.concurrency = experiment.run.concurrency;
  plan.learner.prompts = experiment.algo.prompts;
  plan.learner.group_size = experiment.algo.group_size;
  plan.learner.train_seconds = run.at("time/train");
  plan.learner.close_seconds = run.at("time/update") - run.at("time/wait") - run.at("time/train");
  plan.episodes.replies = std::move(replies);
  for (const SamplerGroupOptions& options : experiment.samplers) {
    simulation::GroupPlan group;
    group.name = options.name;
    group.capacity = options.capacity;
    group.max_sequences = options.max_sequences;
    group.alone_tokens_per_second = 1.0 / pace.step_seconds(options.name);
    group.tokens_per_second = static_cast<double>(options.max_sequences) * *group.alone_tokens_per_second;
    plan.samplers.push_back(group);
  }
  const simulation::Result result = simulation::simulate(plan);
  Numbers numbers{{"time/update", result.update_seconds},
                  {"time/wait", result.hunger * result.update_seconds},
                  {"time/tokens_per_second", result.tokens_per_second},
                  {"staleness/mean", simulation::mean(result.staleness)}};
  for (const simulation::GroupResult& group : result.groups) numbers["share " + group.name] = group.share;
  return numbers;
}

}  // namespace

TEST_CASE("a simulation agrees with a run that it is fed from", "[.fleet-check]") {
  using std::chrono::microseconds;
  std::map<std::string, std::vector<double>> ratios;
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const Experiment experiment = small_fleet(seed);
    Pace pace({{"fast", microseconds(30000)}, {"middle", microseconds(60000)}, {"slow", microseconds(120000)}});
    const TemporaryFolder folder;
    RunSetup setup;
    setup.hooks.before_step = [&](const std::string& group, uint64_t, int64_t step) { pace.before_step(group, step); };
    const Numbers run = measured(run_tiny(experiment, folder.path(), setup));
    std::vector<int64_t> replies;
    for (int64_t update = kSkipped + 1; update < kUpdates; ++update)
      for (const algos::Trajectory& sample : read_trajectories(trajectory_path(folder.path(), update), 1000000))
        replies.push_back(static_cast<int64_t>(sample.records.size()));
    const Numbers model = simulated(experiment, run, pace, replies);
    for (const auto& [name, value] : run) {
      if (name == "time/train") continue;  // it is fed in
      std::printf("seed %d  %-24s run %9.4f  simulation %9.4f\n", static_cast<int>(seed), name.c_str(), value,
                  model.at(name));
      ratios[name].push_back(model.at(name) / value);
    }
  }
  for (const auto& [name, values] : ratios) {
    const double ratio = Pace::median(values);
    std::printf("%-24s simulation / run, median of five: %.3f\n", name.c_str(), ratio);
    CHECK(ratio == Approx(1.0).margin(0.1));
  }
}

}  // namespace motley::actors
