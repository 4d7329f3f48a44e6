// Runs that take a fraction of a second: a model of a few thousand numbers on one-digit sums.
#pragma once

#include <unistd.h>

#include <bit>
#include <catch2/catch.hpp>
#include <filesystem>
#include <functional>
#include <thread>

#include "actors/fleet.h"
#include "tests/temporary_folder.h"

namespace motley::actors {

inline Experiment tiny_experiment(bool async) {
  Experiment experiment;
  experiment.name = "tiny";
  experiment.seed = 5;
  experiment.run.updates = 2;
  experiment.run.async = async;
  experiment.run.concurrency = 32;
  experiment.run.keep_trajectories = "none";
  experiment.run.threads = 2;
  experiment.model.config.layers = 1;
  experiment.model.config.width = 16;
  experiment.model.config.heads = 2;
  experiment.model.config.kv_heads = 1;
  experiment.model.config.max_positions = 64;
  experiment.tasks = {{.env = "arithmetic", .weight = 1.0, .options = {{"digits", "1"}}}};
  for (const envs::Option& option : envs::find_task("arithmetic")->options)
    experiment.tasks[0].options.emplace(option.name, option.default_value);
  experiment.sampling.max_tokens = 4;
  experiment.algo.correction = async ? "sc+mis" : "grpo";
  experiment.algo.prompts = 2;
  experiment.algo.group_size = 4;
  experiment.trainer.profile = "fp32";
  experiment.trainer.lr = 1e-2;
  SamplerGroupOptions group;
  group.name = "one";
  group.profile = "trainer";
  group.max_sequences = 8;
  experiment.samplers = {group};
  experiment.eval.every = 1;
  experiment.eval.prompts = 4;
  experiment.eval.profiles = {"bf16"};
  return experiment;
}

/// A task of the test's own: every prompt is "1=", right answers are "2"; rewards come from `reward`. An episode may
/// have several questions.
class TestTask final : public envs::Task {
 public:
  using RewardFunction = std::function<envs::Reward(std::string_view reply)>;
  explicit TestTask(RewardFunction reward, size_t questions = 1) : reward_(std::move(reward)), questions_(questions) {}
  std::vector<std::string> symbols() const override { return {"1", "2", "="}; }
  envs::Problem problem(uint64_t, uint64_t, bool) const override {
    return {"1=", "2", "2", std::vector<envs::Problem>(questions_ - 1, {"1=", "2", "2"})};
  }
  std::optional<uint64_t> epoch_size(bool) const override { return std::nullopt; }
  envs::Reward reward(const envs::Problem&, std::string_view reply, bool) const override { return reward_(reply); }
  bool has_demonstrations() const override { return true; }

 private:
  RewardFunction reward_;
  size_t questions_;
};
/// Registers it under a name of its own and makes it the experiment's only task.
inline void use_task(Experiment& experiment, const std::string& name, TestTask::RewardFunction reward) {
  envs::register_task(
      {name, "of a test", {}, [reward](const envs::Options&) { return std::make_unique<TestTask>(reward); }});
  experiment.tasks = {{.env = name, .weight = 1.0, .options = {}}};
}

class Recorder final : public RunObserver {
 public:
  void started(int64_t, int64_t, int64_t first) override { first_update = first; }
  void warm_start(int64_t, int64_t, double, bool) override {}
  void update(int64_t update, const algos::Metrics& metrics) override {
    CHECK(std::this_thread::get_id() == thread_);
    rows.emplace_back(update, metrics);
    if (on_update) on_update(update);
  }
  void message(const std::string& text) override { notes.push_back(text); }

  int64_t first_update = 0;
  std::vector<std::pair<int64_t, algos::Metrics>> rows;
  std::vector<std::string> notes;
  std::function<void(int64_t)> on_update;

 private:
  std::thread::id thread_ = std::this_thread::get_id();
};

/// Everything that a clock has no part in, as text with the bits of every number.
inline std::string clockless(const std::vector<std::pair<int64_t, algos::Metrics>>& rows) {
  std::string text;
  for (const auto& [update, metrics] : rows) {
    text += "update " + std::to_string(update) + "\n";
    for (const auto& [name, value] : metrics)
      if (name.find("time/") == std::string::npos && name.find("cost/") == std::string::npos)
        text += name + " " + std::to_string(std::bit_cast<uint64_t>(value)) + "\n";
  }
  return text;
}

struct Outcome {
  RunSummary summary;
  Recorder seen;
};
struct RunSetup {
  std::optional<std::filesystem::path> resume = std::nullopt;
  std::optional<int64_t> stop_after = std::nullopt;
  FleetHooks hooks = {};
};
inline Outcome run_tiny(const Experiment& experiment, const std::filesystem::path& folder, const RunSetup& setup = {}) {
  Outcome outcome;
  StopRequest stop{0};
  outcome.summary = run_fleet({experiment, folder, setup.resume, setup.stop_after}, outcome.seen, stop, setup.hooks);
  return outcome;
}

}  // namespace motley::actors
