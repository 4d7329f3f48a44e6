// Runs on interactions: token in, token out between the task and the samplers, what the learner and the files see of
// it, and episodes that go wrong in every way.
#include "tests/actors/interacting_task.h"
#include "tests/actors/recorded_run.h"

namespace motley::actors {
namespace {

Experiment interacting(bool async) {
  Experiment experiment = tiny_experiment(async);
  experiment.run.keep_trajectories = "all";
  experiment.sampling.max_tokens = 4;
  experiment.algo.prompts = 4;
  experiment.eval.every = 0;
  experiment.eval.prompts = 1;
  return experiment;
}

/// The mean over the batch's trajectories of what `of` gives.
double mean(const std::vector<algos::Trajectory>& batch, const std::function<double(const algos::Trajectory&)>& of) {
  double sum = 0.0;
  for (const algos::Trajectory& t : batch) sum += of(t);
  return sum / static_cast<double>(batch.size());
}

TEST_CASE("an interaction's replies, observations, turns and ending reach the learner; its run is reproducible") {
  Experiment experiment = interacting(false);
  const auto faults = use_interacting_task(experiment, "interacts");
  TemporaryFolder folder;
  const Outcome outcome = run_tiny(experiment, folder.path());
  const auto [trajectories, tokenizer] = recorded(outcome, folder.path(), 1);
  const std::vector<int32_t> question = tokenizer.encode("1=");
  std::map<std::string, int> endings;
  for (const algos::Trajectory& t : trajectories) {
    CAPTURE(t.group, t.sample);
    size_t place = 0;
    int64_t good = 0;
    for (size_t k = 0; k < t.turns.size(); ++k) {
      for (const int32_t token : question) {
        CHECK(t.tokens.at(place) == token);
        CHECK(t.loss_mask.at(place++) == 0);
      }
      CHECK(t.turns[k].tokens <= (k == 0 ? 3 : 4));  // what the task allows, and what sampling.max_tokens does
      good += tokenizer.decode(std::span(t.tokens).subspan(place, 1)) == "2" ? 1 : 0;
      for (uint32_t i = 0; i < t.turns[k].tokens; ++i) CHECK(t.loss_mask.at(place++) == 1);
      CHECK(t.turns[k].reward == (k + 1 == t.turns.size() ? t.reward : 0.0));
    }
    CHECK(place == t.tokens.size());
    CHECK(t.ending == (good == 2 ? "submitted" : "turn_limit"));
    CHECK(t.truncated == (good < 2));
    CHECK(t.format_errors == static_cast<int64_t>(t.turns.size()) - good);
    CHECK(t.format_error == (t.format_errors > 0));
    CHECK(t.reward == (good == 2 ? 1.0 : 0.25 * static_cast<double>(good)));
    ++endings[t.ending];
  }
  CHECK(endings.size() == 2);  // of both kinds there are some
  const algos::Metrics& metrics = outcome.seen.rows.at(1).second;
  CHECK(metrics.at("kl/sampler_trainer") == 0.0);  // the later turns' contexts are those that the sampler saw
  CHECK(metrics.at("episode/turns") == mean(trajectories, [](const auto& t) { return double(t.turns.size()); }));
  CHECK(metrics.at("episode/tokens") == mean(trajectories, [](const auto& t) { return double(t.records.size()); }));
  CHECK(metrics.at("episode/read_tokens") ==
        mean(trajectories, [](const auto& t) { return double(t.tokens.size() - t.records.size()); }));
  CHECK(
      metrics.at("reply/format_error") ==
      Approx(mean(trajectories, [](const auto& t) { return double(t.format_errors); }) / metrics.at("episode/turns")));
  for (const auto& [ending, count] : endings)
    CHECK(metrics.at("episode/end/" + ending) == count / static_cast<double>(trajectories.size()));
  CHECK(faults->alive == 0);

  // The same again, on other threads, workers and replicas; and stopped and resumed.
  Experiment other = experiment;
  other.samplers[0].replicas = 2;
  other.run.threads = 1;
  other.run.workers = 1;
  TemporaryFolder again, halves;
  CHECK(clockless(run_tiny(other, again.path()).seen.rows) == clockless(outcome.seen.rows));
  const Outcome half = run_tiny(experiment, halves.path(), {.stop_after = 1});
  const Outcome rest = run_tiny(experiment, halves.path(), {.resume = half.summary.checkpoint});
  CHECK(clockless({rest.seen.rows.back()}) == clockless({outcome.seen.rows.back()}));
  CHECK(load_checkpoint(rest.summary.checkpoint).parameters.fingerprints() ==
        load_checkpoint(outcome.summary.checkpoint).parameters.fingerprints());
}

TEST_CASE("asynchronous: an interaction stays in the group that it began in, and resumes") {
  Experiment experiment = interacting(true);
  const auto faults = use_interacting_task(experiment, "interacts_async");
  experiment.samplers.push_back(experiment.samplers[0]);
  experiment.samplers[1].name = "two";
  experiment.samplers[1].profile = "h100-fp8";
  for (SamplerGroupOptions& group : experiment.samplers) group.capacity = 1.0, group.max_sequences = 32;
  TemporaryFolder folder;
  const Outcome first = run_tiny(experiment, folder.path(), {.stop_after = 1});
  const algos::Metrics& metrics = first.seen.rows.at(1).second;
  CHECK(metrics.at("episode/turns") > 1.0);
  CHECK(metrics.at("group/one/kl/sampler_trainer") == 0.0);  // not one token was drawn by the other's fp8
  CHECK(metrics.at("group/two/kl/sampler_trainer") != 0.0);
  CHECK(faults->alive == 0);  // those in mid-episode at the stop included
  const Outcome rest = run_tiny(experiment, folder.path(), {.resume = first.summary.checkpoint});
  CHECK(rest.summary.updates == 2);
  CHECK(rest.seen.rows.back().second.at("samples/failed") == 0.0);
  CHECK(faults->alive == 0);
}

TEST_CASE("an interaction that goes wrong fails its own episode, with the reason, and is never a 0") {
  const std::vector<std::pair<Fault, std::string>> faulty{
      {Fault::throws_at_birth, "no room for a sandbox"},
      {Fault::throws_in_begin, "nothing begins"},
      {Fault::throws_in_reply, "the shell is gone"},
      {Fault::rewrites, "its context is not what was read and drawn so far"},
      {Fault::claims, "its context is not what was read and drawn so far"},
      {Fault::asks_for_nothing, "it asks for a reply of 0 tokens where there is room for 62"},
      {Fault::reads_no_token, "vocabulary"},
      {Fault::throws_in_score, "the scorer broke"},
      {Fault::reward_is_nan, "its reward is not a finite number"},
      {Fault::part_is_infinite, "its reward is not a finite number"},
      {Fault::turns_do_not_fit, "turns' rewards for"},
      {Fault::ending_is_no_word, "it ended by \"the/end\", which is no word"},
      {Fault::says_it_failed, "the tests could not run"},
  };
  const bool async = GENERATE(false, true);
  Experiment experiment = interacting(async);
  const auto faults = use_interacting_task(experiment, async ? "fails_async" : "fails");
  faults->choose = [&](int64_t episode) {
    if (episode < static_cast<int64_t>(faulty.size())) return faulty[static_cast<size_t>(episode)].first;
    return episode == static_cast<int64_t>(faulty.size()) ? Fault::over_at_once : Fault::none;
  };
  experiment.run.updates = 4;
  TemporaryFolder folder;
  const Outcome outcome = run_tiny(experiment, folder.path());
  std::vector<std::string> failures;
  int nothing_to_do = 0;
  for (int64_t update = 1; update <= 4; ++update) {
    double failed = 0.0;
    const auto batch = recorded(outcome, folder.path(), update).trajectories;
    for (const algos::Trajectory& t : batch) {
      nothing_to_do += t.ending == "nothing_to_do" && t.failure.empty() && t.records.size() == 0 ? 1 : 0;
      CHECK((t.ending == "failed") == !t.failure.empty());
      if (t.failure.empty()) continue;
      ++failed;
      failures.push_back(t.failure);
    }
    const algos::Metrics& metrics = outcome.seen.rows.at(static_cast<size_t>(update)).second;
    CHECK(metrics.at("samples/failed") == failed);
    if (failed > 0.0) CHECK(metrics.at("episode/end/failed") == failed / static_cast<double>(batch.size()));
  }
  CHECK(nothing_to_do == 1);
  CHECK(failures.size() == faulty.size());
  for (const auto& [fault, text] : faulty) {
    CAPTURE(text);
    CHECK(std::any_of(failures.begin(), failures.end(), [&, &wanted = text](const std::string& failure) {
      return failure.find(wanted) != std::string::npos;
    }));
  }
  CHECK(faults->alive == 0);
}

TEST_CASE("what a task's episodes need is asked for before anything is computed") {
  Experiment experiment = interacting(false);
  const auto faults = use_interacting_task(experiment, "lacks");
  faults->lacking = "no sandboxes here";
  TemporaryFolder folder;
  Recorder recorder;
  recorder.first_update = -1;
  StopRequest stop{0};
  CHECK_THROWS_AS(run_experiment({experiment, folder.path(), {}, {}}, recorder, stop), envs::TaskError);
  CHECK_THROWS_WITH(run_experiment({experiment, folder.path(), {}, {}}, recorder, stop), "no sandboxes here");
  CHECK(recorder.first_update == -1);  // it was never told that the run starts
  CHECK(faults->episodes == 0);
}

TEST_CASE("an interaction that hangs fails its own episode, and its worker comes back") {
  Experiment experiment = interacting(false);
  const auto faults = use_interacting_task(experiment, "hangs");
  faults->choose = [](int64_t episode) { return episode == 2 ? Fault::hangs : Fault::none; };
  faults->hang = std::chrono::milliseconds(1300);
  experiment.run.workers = 1;  // without it nothing goes on
  TemporaryFolder folder;
  FleetHooks hooks;
  hooks.call_limit = std::chrono::milliseconds(1000);  // far above what a call takes on a busy machine
  const Outcome outcome = run_tiny(experiment, folder.path(), {.hooks = hooks});
  CHECK(outcome.seen.rows.at(1).second.at("samples/failed") == 1.0);
  CHECK(outcome.seen.rows.at(2).second.at("samples/failed") == 0.0);
  const auto batch = recorded(outcome, folder.path(), 1).trajectories;
  CHECK(std::count_if(batch.begin(), batch.end(), [](const algos::Trajectory& t) {
          return t.failure.find("its task did not answer") != std::string::npos;
        }) == 1);
  CHECK(faults->alive == 0);
}

}  // namespace
}  // namespace motley::actors
