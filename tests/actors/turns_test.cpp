// Runs on episodes of several questions: token in, token out over the turns, one sampler group an episode, and what the
// learner and the files see of it.
#include "tests/actors/recorded_run.h"

namespace motley::actors {
namespace {

Experiment three_questions(bool async) {
  Experiment experiment = tiny_experiment(async);
  experiment.tasks[0].options["questions"] = "3";
  experiment.run.keep_trajectories = "all";
  experiment.warmstart = {.steps = 40, .batch = 16, .lr = 1e-2, .cache = false};
  experiment.sampling.max_tokens = 2;  // a digit and the end: sums of 10 and more are cut off
  experiment.algo.advantage_level = "turn";
  experiment.algo.prompts = 4;
  experiment.eval.every = 0;
  return experiment;
}

TEST_CASE("every turn reads its question after the reply that was drawn, and earns its share of the reward") {
  const Experiment experiment = three_questions(false);
  TemporaryFolder folder;
  const Outcome outcome = run_tiny(experiment, folder.path());
  const auto [trajectories, tokenizer] = recorded(outcome, folder.path(), 1);
  const auto task = envs::find_task("arithmetic")->make(experiment.tasks[0].options);
  std::vector<envs::TaskMix::Entry> entries;
  entries.push_back({"arithmetic", envs::find_task("arithmetic")->make(experiment.tasks[0].options), 1.0});
  const envs::TaskMix tasks(std::move(entries), experiment.seed);
  std::map<size_t, int> episodes;  // by number of turns
  double turns = 0.0;
  for (const algos::Trajectory& t : trajectories) {
    CAPTURE(t.group, t.sample);
    const envs::Problem problem = tasks.training(t.group).problem;
    ++episodes[t.turns.size()];
    turns += static_cast<double>(t.turns.size());
    size_t place = 0, record = 0;
    double reward = 0.0;
    for (size_t k = 0; k < t.turns.size(); ++k) {
      const envs::Problem& question = k == 0 ? problem : problem.more[k - 1];
      for (const int32_t token : tokenizer.encode(question.prompt)) {
        CHECK(t.tokens.at(place) == token);
        CHECK(t.loss_mask.at(place++) == 0);
      }
      std::vector<int32_t> reply;
      for (uint32_t i = 0; i < t.turns[k].tokens; ++i, ++place, ++record) {
        CHECK(t.loss_mask.at(place) == 1);
        CHECK(t.tokens.at(place) == t.records.tokens.at(record));
        reply.push_back(t.tokens[place]);
      }
      const bool ended = reply.back() == tokenizer.eos();
      CHECK((ended || k + 1 == t.turns.size()));  // a reply that was cut off is the last
      if (k + 1 == t.turns.size()) CHECK(t.truncated == !ended);
      if (ended) reply.pop_back();
      const double value = task->reward(question, tokenizer.decode(reply), ended).value;
      CHECK(t.turns[k].reward == value / 3.0);
      reward += value;
    }
    CHECK(place == t.tokens.size());
    CHECK(t.reward == reward / 3.0);
  }
  CHECK(episodes.size() >= 2);  // members of a group have different numbers of turns
  CHECK(episodes[3] > 0);
  const algos::Metrics& metrics = outcome.seen.rows.at(1).second;
  CHECK(metrics.at("episode/turns") == turns / static_cast<double>(trajectories.size()));
  CHECK(metrics.at("kl/sampler_trainer") == 0.0);  // the later turns' contexts are those that the sampler saw
  CHECK(metrics.at("samples/failed") == 0.0);

  // The same again, on other threads and replicas; and stopped and resumed.
  Experiment other = experiment;
  other.samplers[0].replicas = 2;
  other.run.threads = 1;
  TemporaryFolder again, halves;
  CHECK(clockless(run_tiny(other, again.path()).seen.rows) == clockless(outcome.seen.rows));
  const Outcome half = run_tiny(experiment, halves.path(), {.stop_after = 1});
  const Outcome rest = run_tiny(experiment, halves.path(), {.resume = half.summary.checkpoint});
  CHECK(load_checkpoint(rest.summary.checkpoint).parameters.fingerprints() ==
        load_checkpoint(outcome.summary.checkpoint).parameters.fingerprints());
}

TEST_CASE("asynchronous: an episode stays in the group that it began in") {
  Experiment experiment = three_questions(true);
  experiment.run.updates = 1;  // all tokens are of the starting weights
  experiment.samplers.push_back(experiment.samplers[0]);
  experiment.samplers[1].name = "two";
  experiment.samplers[1].profile = "h100-fp8";
  for (SamplerGroupOptions& group : experiment.samplers) group.capacity = 1.0, group.max_sequences = 32;
  TemporaryFolder folder;
  const Outcome outcome = run_tiny(experiment, folder.path());
  const algos::Metrics& metrics = outcome.seen.rows.at(1).second;
  CHECK(metrics.at("episode/turns") > 1.0);
  CHECK(metrics.at("group/one/kl/sampler_trainer") == 0.0);  // not one token was drawn by the other's fp8
  CHECK(metrics.at("group/two/kl/sampler_trainer") != 0.0);
}

TEST_CASE("a later question that the model has no room for ends the episode; prompts that never fit are refused") {
  Experiment experiment = three_questions(false);
  experiment.run.updates = 1;
  experiment.warmstart.steps = 0;
  experiment.algo.prompts = 40;  // few replies of an untrained model end
  experiment.model.config.max_positions =
      15;  // three prompts of 4 and a token for each of two replies, but little more
  TemporaryFolder folder;
  const Outcome outcome = run_tiny(experiment, folder.path());
  const auto [trajectories, tokenizer] = recorded(outcome, folder.path(), 1);
  int cut = 0;
  for (const algos::Trajectory& t : trajectories) {
    CHECK(t.failure.empty());
    CHECK(t.tokens.size() <= 15);
    if (t.turns.size() == 2 && t.records.tokens.back() == tokenizer.eos()) {
      CHECK(t.truncated);
      ++cut;
    }
  }
  CHECK(cut > 0);
  experiment.model.config.max_positions = 14;
  CHECK_THROWS_WITH(run_tiny(experiment, folder.path()),
                    Catch::Contains("an episode that reads at least 14 tokens leaves no room"));
}

}  // namespace
}  // namespace motley::actors
