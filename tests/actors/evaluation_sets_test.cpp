// Evaluations of interactions, on sets of held-out problems, in several profiles.
#include <array>
#include <map>
#include <mutex>

#include "actors/evaluator.h"
#include "tests/actors/interacting_task.h"

using Catch::Matchers::Contains;

namespace motley::actors {
namespace {

/// Six held-out problems, the last three of them "hard"; faults are asked for in evaluations too.
class HeldOut final : public envs::Task {
 public:
  explicit HeldOut(std::shared_ptr<Faults> faults) : episodes_(std::move(faults)) {}
  std::vector<std::string> symbols() const override { return episodes_.symbols(); }
  envs::Problem problem(uint64_t, uint64_t index, bool held_out) const override {
    return {.prompt = (held_out ? "held out " : "training ") + std::to_string(index),
            .answer = "training",
            .demonstration = ""};
  }
  std::optional<uint64_t> epoch_size(bool) const override { return 6; }
  envs::Reward reward(const envs::Problem&, std::string_view, bool) const override { return {}; }
  std::map<std::string, std::vector<uint64_t>> held_out_sets() const override { return {{"hard", {3, 4, 5}}}; }
  bool has_demonstrations() const override { return false; }
  bool interacts() const override { return true; }
  std::unique_ptr<envs::Interaction> interact(const envs::Problem& problem, const envs::Tokenizer& tokenizer,
                                              const envs::InteractionLimits& limits) const override {
    if (before) before(problem.prompt);
    {
      const std::lock_guard lock(mutex_);
      ++played[problem.prompt];
    }
    return episodes_.interact(problem, tokenizer, limits);
  }
  mutable std::map<std::string, int> played;
  std::function<void(const std::string& prompt)> before;

 private:
  InteractingTask episodes_;
  mutable std::mutex mutex_;
};

struct Setup {
  std::shared_ptr<Faults> faults = std::make_shared<Faults>();
  const HeldOut* task = nullptr;
  std::unique_ptr<const envs::TaskMix> tasks;
  envs::Tokenizer tokenizer;
  std::shared_ptr<const SamplerWeights> weights;
  EvaluationRequest request{.prompts = 100, .samples = 4, .max_tokens = 3, .k = {1, 4}, .seed = 3};

  Setup() {
    auto made = std::make_unique<HeldOut>(faults);
    task = made.get();
    std::vector<envs::TaskMix::Entry> entries;
    entries.push_back({"test", std::move(made), 1.0});
    tasks = std::make_unique<const envs::TaskMix>(std::move(entries), 1);
    tokenizer = tasks->tokenizer();
    TransformerConfig model = tiny_experiment(false).model.config;
    model.vocabulary = tokenizer.size();
    model = model.resolved();
    weights =
        std::make_shared<SamplerWeights>(model, Parameters::initialize(model, 3), *kernels::find_profile("bf16"), 0);
  }
  std::vector<EvaluationResult> run(int64_t slots, int64_t threads, const std::function<bool()>& stop = {}) {
    request.threads = threads;
    return evaluate(weights, *tasks, tokenizer, request, slots, stop);
  }
};

void check_equal(const EvaluationResult& a, const EvaluationResult& b) {
  CAPTURE(a.set);
  REQUIRE(a.pass_at.size() == b.pass_at.size());
  for (const auto& [k, pass] : a.pass_at) {
    CHECK(pass.value == b.pass_at.at(k).value);
    CHECK(pass.problems == b.pass_at.at(k).problems);
  }
  CHECK(a.ends == b.ends);
  CHECK(a.mean_reward == b.mean_reward);
  CHECK(a.turns == b.turns);
  CHECK(a.tokens == b.tokens);
  CHECK(a.format_errors == b.format_errors);
}

TEST_CASE("interactions are evaluated alike with any slots and threads, however long their commands take") {
  Setup setup;
  const EvaluationResult one = setup.run(1, 1).at(0);
  CHECK(one.prompts == 6);
  CHECK(one.samples == 24);
  CHECK(one.failed == 0);
  CHECK(one.turns > 1.0);
  CHECK(one.turns <= 4.0);
  CHECK(one.tokens > 3.0 * one.turns);
  CHECK(one.format_error > 0.0);
  CHECK(one.ends.at("submitted") + one.ends.at("turn_limit") == 24);
  CHECK(one.pass_at.at(1).value == Approx(static_cast<double>(one.ends.at("submitted")) / 24.0));
  CHECK(one.pass_at.at(4).problems == 6);
  setup.faults->hang = std::chrono::milliseconds(2);
  setup.faults->choose = [](int64_t episode) { return episode % 3 == 0 ? Fault::hangs : Fault::none; };
  check_equal(setup.run(64, 8).at(0), one);
  check_equal(setup.run(3, 2).at(0), one);
  CHECK(setup.faults->alive == 0);
}

TEST_CASE("an interaction that fails is counted apart, and pass@k is of problems with k samples left") {
  Setup setup;
  // In the order of the samples: the first problem loses one, the second all.
  setup.faults->choose = [](int64_t episode) {
    constexpr std::array kFaults{
        Fault::throws_in_reply, Fault::none,          Fault::none,           Fault::none,
        Fault::throws_at_birth, Fault::reward_is_nan, Fault::says_it_failed, Fault::throws_in_score};
    return episode < 8 ? kFaults[static_cast<size_t>(episode)] : Fault::none;
  };
  setup.request.sets = {"full", "hard"};
  const std::vector<EvaluationResult> results = setup.run(4, 1);
  const EvaluationResult& full = results.at(0);
  CHECK(full.failed == 5);
  CHECK(full.samples == 19);
  CHECK(full.ends.at("failed") == 5);
  CHECK(full.pass_at.at(1).problems == 5);
  CHECK(full.pass_at.at(4).problems == 4);
  CHECK_THAT(full.first_failure, Contains("the shell is gone"));
  CHECK(full.mean_reward <= 1.0);
  CHECK(results.at(1).failed == 0);
  CHECK(setup.faults->alive == 0);
}

TEST_CASE("sets of held-out problems: each its own result, a problem of several is played once") {
  Setup setup;
  const EvaluationResult full = setup.run(8, 2).at(0);
  setup.request.sets = {"hard"};
  const EvaluationResult hard = setup.run(8, 2).at(0);
  CHECK(hard.set == "hard");
  CHECK(hard.prompts == 3);
  setup.task->played.clear();
  setup.request.sets = {"full", "hard"};
  const std::vector<EvaluationResult> both = setup.run(8, 2);
  REQUIRE(both.size() == 2);
  check_equal(both[0], full);
  check_equal(both[1], hard);
  for (const auto& [problem, times] : setup.task->played) CHECK(times == 4);
  CHECK(setup.task->played.size() == 6);
  setup.request.prompts = 2;  // of each
  setup.task->played.clear();
  CHECK(setup.run(8, 2).at(1).prompts == 2);
  CHECK(setup.task->played.size() == 4);
  setup.request.sets = {"easy"};
  CHECK_THROWS_WITH(setup.run(8, 2), Contains("no held-out problem is in a set named easy; there are: full, hard"));
}

TEST_CASE("an evaluation that is stopped leaves no episode") {
  Setup setup;
  int asked = 0;
  CHECK(setup.run(4, 2, [&] { return ++asked > 6; }).empty());
  CHECK(setup.faults->alive == 0);
}

TEST_CASE("an evaluation has a temperature of its own, and tells sets and the gap between profiles") {
  const TemporaryFolder folder;
  Experiment experiment = tiny_experiment(false);
  auto faults = std::make_shared<Faults>();
  envs::register_task(
      {"held_out_sets", "of a test", {}, [faults](const envs::Options&) { return std::make_unique<HeldOut>(faults); }});
  experiment.tasks = {{.env = "held_out_sets", .weight = 1.0, .options = {}}};
  experiment.eval.sets = {"full", "hard"};
  experiment.eval.profiles = {"bf16", "nvfp4"};
  const auto metrics = [&] {
    Recorder recorder;
    StopRequest stop{0};
    const RunRequest request{.experiment = experiment, .folder = folder.path(), .resume = {}, .stop_after = {}};
    const auto [fleet, point] = prepare(request, recorder, stop);
    return evaluate_version(*fleet, point->parameters, 7);
  };
  const algos::Metrics usual = metrics();
  CHECK(usual.at("eval/version") == 7.0);
  for (const std::string set : {"", "hard/"})
    for (const std::string k : {"1", "4"})
      CHECK(usual.at("eval/nvfp4/" + set + "gap_at_" + k) ==
            usual.at("eval/" + set + "pass_at_" + k) - usual.at("eval/nvfp4/" + set + "pass_at_" + k));
  CHECK(usual.at("eval/failed") == 0.0);
  CHECK(usual.at("eval/hard/pass_at_4") != usual.at("eval/pass_at_4"));
  experiment.sampling.temperature = 0.25;
  experiment.sampling.top_p = 0.5;
  CHECK(metrics() == usual);
  experiment.eval.temperature = 0.25;
  CHECK(metrics() != usual);
  experiment.eval.temperature = 1.0;
  experiment.eval.top_p = 0.2;
  CHECK(metrics() != usual);
}

TEST_CASE("a run goes on while the commands of an evaluation run") {
  const TemporaryFolder folder;
  Experiment experiment = tiny_experiment(true);
  std::atomic<int64_t> seen{-1};
  std::atomic<bool> waited{false}, held_up{false};
  // The evaluation after update 3 does not end before update 4.
  const auto wait = [&](const std::string& prompt) {
    if (!prompt.starts_with("held out") || seen < 2) return;
    waited = true;
    for (int i = 0; i < 1000 && seen < 4; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (seen < 4) held_up = true;
  };
  auto faults = std::make_shared<Faults>();
  envs::register_task({"slow_evaluation", "of a test", {}, [faults, wait](const envs::Options&) {
                         auto task = std::make_unique<HeldOut>(faults);
                         task->before = wait;
                         return task;
                       }});
  experiment.tasks = {{.env = "slow_evaluation", .weight = 1.0, .options = {}}};
  experiment.run.updates = 7;  // the row before the next evaluation waits
  experiment.eval.every = 3;
  Recorder recorder;
  recorder.on_update = [&](int64_t update) { seen = update; };
  StopRequest stop{0};
  run_fleet({experiment, folder.path(), std::nullopt, std::nullopt}, recorder, stop, {});
  CHECK(waited);
  CHECK_FALSE(held_up);
  CHECK(recorder.rows.back().second.at("eval/version") == 7.0);
}

}  // namespace
}  // namespace motley::actors
