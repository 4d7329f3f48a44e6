// Evaluations by a process that has joined, here from other threads of the same one: the run's own numbers, whoever
// makes them, and what is lost on the way.
#include "actors/evaluator.h"
#include "actors/remote/evaluation_service.h"
#include "actors/remote/evaluation_wire.h"
#include "actors/remote/evaluator_seats.h"
#include "actors/remote/join_evaluator.h"
#include "tests/actors/listening_run.h"

namespace motley::actors {
namespace {

constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

/// Without a sampler of its own, so that nothing is evaluated before a test lets one join.
Experiment evaluated_experiment(const std::string& task, const std::function<void()>& before_reward = {}) {
  Experiment experiment = remote_experiment(2);
  experiment.run.keep_trajectories = "none";
  use_task(experiment, task, [before_reward](std::string_view reply) {
    if (before_reward) before_reward();
    return envs::Reward{reply.starts_with("2") ? 1.0 : 0.0, {}, false};
  });
  experiment.eval.prompts = 8;
  experiment.eval.profiles = {"bf16", "nvfp4"};
  return experiment;
}

Joined evaluator_of(const Running& run, const Experiment& experiment) {
  return Joined([=, address = run.address](const Joined::Say& say, StopRequest& stop) {
    return run_evaluator({.address = address,
                          .keys = nullptr,
                          .experiment_of = [&](const std::string&) { return experiment; },
                          .patience = std::chrono::seconds(20)},
                         say, stop);
  });
}

algos::Metrics evaluation_of(const algos::Metrics& row) {
  algos::Metrics metrics;
  for (const auto& [name, value] : row)
    if (name.starts_with("eval/")) metrics.emplace(name, value);
  return metrics;
}

/// Of the weights before the first update, by a run that nobody joins.
algos::Metrics own_evaluation(Experiment experiment) {
  experiment.samplers[0].replicas = 1;
  const TemporaryFolder folder;
  algos::Metrics metrics = evaluation_of(run_tiny(experiment, folder.path()).seen.rows.at(0).second);
  CHECK(metrics.at("eval/pass_at_1") > 0.0);
  CHECK(metrics.at("eval/pass_at_1") < metrics.at("eval/pass_at_4"));
  return metrics;
}

/// A seat whose evaluator answers every question at once with `kind` and `body`; it hangs up for `causes`.
struct Scripted {
  Scripted(FrameKind kind, const std::string& body)
      : line(std::make_shared<PeerLine>(
            [this, kind, body](FrameKind asked, std::string) {
              if (asked == FrameKind::evaluate) line->frame(kind, body);
              if (asked == FrameKind::part) line->frame(FrameKind::taken, "");
            },
            [this](const std::string& cause) { causes.push_back(cause); })) {}
  std::vector<std::string> causes;
  std::shared_ptr<PeerLine> line;
};

/// Training problems that are always the same, and held-out ones that are not.
class OtherHeldOut final : public envs::Task {
 public:
  explicit OtherHeldOut(std::string answer) : answer_(std::move(answer)) {}
  std::vector<std::string> symbols() const override { return {"1", "2"}; }
  envs::Problem problem(uint64_t, uint64_t, bool held_out) const override {
    return {"1", held_out ? answer_ : "1", "1", {}};
  }
  std::optional<uint64_t> epoch_size(bool) const override { return 2; }
  envs::Reward reward(const envs::Problem&, std::string_view, bool) const override { return {0.0, {}, false}; }
  bool has_demonstrations() const override { return false; }

 private:
  std::string answer_;
};

}  // namespace

TEST_CASE("an evaluator that joins gives the numbers of the run's own; one with other tasks is refused") {
  const Experiment experiment = evaluated_experiment("evaluated_elsewhere");
  const algos::Metrics own = own_evaluation(experiment);
  Running run(experiment);
  CHECK_THROWS_WITH(evaluator_of(run, evaluated_experiment("evaluated_other")).end.get(),
                    "the run refuses this evaluator: task evaluated_elsewhere gives other problems there: is its data "
                    "the same?");
  Joined evaluates = evaluator_of(run, experiment);
  run.seen.wait_for("evaluator 1 (");
  run.seen.wait_for("has the run's tasks");
  Joined sampler({.address = run.address});
  CHECK(run.result.get().updates == 2);
  CHECK(evaluates.end.get() == JoinEnd::run_over);
  CHECK(evaluation_of(run.seen.rows.at(0)) == own);
  CHECK(run.seen.rows.at(2).at("eval/version") == 2.0);
  for (const std::string version : {"0", "1", "2"}) CHECK(run.seen.count(") has evaluated version " + version) == 1);
  CHECK(run.seen.count("was lost") == 1);  // the one that was refused
}

TEST_CASE("a run makes an evaluation itself that an evaluator leaves") {
  std::atomic<int> calls{0};
  std::atomic<bool> held{true};
  const Experiment experiment = evaluated_experiment("evaluation_left", [&] {
    if (calls++ == 0)  // of the evaluator that joins
      for (int i = 0; i < 20000 && held; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  Running run(experiment);
  Joined leaves = evaluator_of(run, experiment);
  run.seen.wait_for("has the run's tasks");
  Joined sampler({.address = run.address});
  for (int i = 0; i < 20000 && calls == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  leaves.stop = 1;
  run.seen.wait_for_update(0);  // while it still hangs there
  CHECK(held);
  held = false;
  CHECK(leaves.end.get() == JoinEnd::left);
  CHECK(run.result.get().updates == 2);
  calls = 1;
  CHECK(evaluation_of(run.seen.rows.at(0)) == own_evaluation(experiment));
  CHECK(run.seen.count("evaluator 0 (") == 3);  // joins, has the tasks, left
  CHECK(run.seen.count(" left; an evaluation that it has under way is made by the run itself") == 1);
  CHECK(run.seen.count("was lost") == 0);
}

TEST_CASE("what an evaluator answers is held to what was asked; the run makes what went wrong itself") {
  Experiment experiment = evaluated_experiment("evaluation_wrong");
  experiment.eval.prompts = 1;
  const TemporaryFolder folder;
  Recorder recorder;
  StopRequest stop{0};
  const auto [fleet, point] =
      prepare({.experiment = experiment, .folder = folder.path(), .resume = {}, .stop_after = {}}, recorder, stop);
  const algos::Metrics own = evaluate_version(*fleet, point->parameters, 7);
  const auto answered = [&, fleet = fleet, point = point](FrameKind kind, const std::string& body) {
    Scripted evaluator(kind, body);
    fleet->evaluators = std::make_shared<EvaluatorSeats>();
    fleet->evaluators->add({evaluator.line, "it"});
    std::vector<std::string> said;
    const algos::Metrics metrics =
        evaluate_anywhere(*fleet, point->parameters, {3, 7}, [&](const std::string& text) { said.push_back(text); });
    const bool taken = !said.empty();
    CHECK(metrics.contains("eval/pass_at_1") == true);
    CHECK(evaluator.causes.size() == (taken ? 0 : 1));
    CHECK(fleet->evaluators->first().has_value() == taken);
    if (!taken) CHECK(metrics == own);
    return taken ? std::to_string(metrics.at("eval/pass_at_1")) : evaluator.causes.at(0);
  };
  const algos::Metrics good{{"eval/version", 7.0}, {"eval/pass_at_1", 0.125}};
  const auto with = [&](const std::string& name, double value) {
    algos::Metrics metrics = good;
    metrics[name] = value;
    return trained_body({3, metrics});
  };
  CHECK(answered(FrameKind::evaluated, trained_body({3, good})) == "0.125000");
  const auto wrong = [&](FrameKind kind, const std::string& body, const std::string& cause) {
    CHECK_THAT(answered(kind, body), Catch::Contains(cause));
  };
  wrong(FrameKind::evaluated, trained_body({4, good}), "update 4 where update 3 was asked for");
  wrong(FrameKind::evaluated, with("eval/version", 6.0), "another version than 7");
  wrong(FrameKind::evaluated, trained_body({3, {}}), "another version than 7");
  wrong(FrameKind::evaluated, with("reward/mean", 1.0), "a metric that no evaluation has");
  wrong(FrameKind::evaluated, with("eval/pass_at_1", kNoNumber), "a metric that no evaluation has");
  wrong(FrameKind::evaluated, "", "what it sent is not right");
  wrong(FrameKind::failed, text_body("no memory"), "it failed: no memory");
  wrong(FrameKind::state, "", "which nobody asked for");

  Scripted gone(FrameKind::evaluated, trained_body({3, good}));
  fleet->evaluators = std::make_shared<EvaluatorSeats>();
  fleet->evaluators->add({gone.line, "it"});
  gone.line->closed("killed");
  CHECK(evaluate_anywhere(*fleet, point->parameters, {3, 7}, [](const std::string&) { FAIL(); }) == own);
}

TEST_CASE("the head of an evaluation comes back, and nothing that is cut short or out of range is taken") {
  const std::string body = evaluate_body({3, 1'000'000'000});
  CHECK(evaluate_body(parse_evaluate(body)) == body);
  for (size_t length = 0; length < body.size(); ++length)
    CHECK_THROWS_AS(parse_evaluate(std::string_view(body).substr(0, length)), WireError);
  CHECK_THROWS_AS(parse_evaluate(evaluate_body({1'000'000'001, 0})), WireError);
  CHECK_THROWS_AS(parse_evaluate(evaluate_body({0, ~uint64_t{0}})), WireError);
  CHECK_THROWS_AS(parse_evaluate(trained_body({3, {}})), WireError);
}

TEST_CASE("two processes with other problems held out have other tasks") {
  const auto digests = [](const std::string& answer) {
    std::vector<envs::TaskMix::Entry> entries;
    entries.push_back({"t", std::make_unique<OtherHeldOut>(answer), 1.0});
    return task_digests(envs::TaskMix(std::move(entries), 1), 1);
  };
  CHECK(other_tasks(digests("2"), digests("2")).empty());
  CHECK(other_tasks(digests("2"), digests("3")) == "task t gives other problems there: is its data the same?");
}

}  // namespace motley::actors
