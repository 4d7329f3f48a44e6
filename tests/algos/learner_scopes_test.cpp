// What the learner shows a correction: the trainer's log-probabilities at the start of the batch, all samples of a step
// at once where it asks for them, sampler groups and ages.
#include <catch2/catch.hpp>
#include <set>

#include "tests/algos/episodes.h"

namespace motley::algos {
namespace {

/// A copy of what a correction was shown.
struct Seen {
  std::vector<double> drawn_log_p, log_q, log_p_old, advantage;
  std::vector<int64_t> sequence, sampler_group, staleness;
  std::vector<std::string> group_names;
  int64_t steps_since_old = 0;
};

/// Plain policy gradient, weighted so that every sample's coefficient depends on all samples of the view.
class Spy final : public Correction {
 public:
  Spy(Scope scope, bool old, std::vector<Seen>* seen) : scope_(scope), old_(old), seen_(seen) {}
  Scope scope() const override { return scope_; }
  bool needs_old_log_probs() const override { return old_; }
  void coefficients(const CorrectionBatch& batch, Coefficients& out) const override {
    Seen seen;
    double sum = 0.0;
    for (size_t t = 0; t < batch.tokens(); ++t) {
      const auto drawn = static_cast<size_t>(batch.sampled[t]);
      seen.drawn_log_p.push_back(batch.log_p[drawn]);
      seen.log_q.push_back(batch.log_q[drawn]);
      sum += batch.log_p[drawn];
    }
    seen.log_p_old.assign(batch.log_p_old.begin(), batch.log_p_old.end());
    seen.advantage.assign(batch.advantage.begin(), batch.advantage.end());
    seen.sequence.assign(batch.sequence.begin(), batch.sequence.end());
    seen.sampler_group.assign(batch.sampler_group.begin(), batch.sampler_group.end());
    seen.staleness.assign(batch.staleness.begin(), batch.staleness.end());
    seen.group_names.assign(batch.group_names.begin(), batch.group_names.end());
    seen.steps_since_old = batch.steps_since_old;
    for (size_t t = 0; t < batch.tokens(); ++t) {
      const double weight = scope_ == Scope::batch ? 1.0 + sum / static_cast<double>(batch.tokens()) : 1.0;
      out.b[static_cast<size_t>(batch.sampled[t])] = -batch.advantage[t] * weight;
      out.masked[t] = batch.log_p[static_cast<size_t>(batch.sampled[t])] < -2.5;
    }
    out.samples["spy/log_p"] = seen.drawn_log_p;
    if (seen_) seen_->push_back(std::move(seen));
  }

 private:
  Scope scope_;
  bool old_;
  std::vector<Seen>* seen_;
};

struct Run {
  TransformerConfig model = tiny_model();
  Parameters parameters;
  Learner learner;
  std::vector<Seen> seen;
  Run(const LearnerConfig& config, Scope scope, bool old)
      : parameters(masters(model, config.profile.output)),
        learner(model, parameters, config, std::make_unique<Spy>(scope, old, &seen)) {}
};

/// Eight samples in four groups; the third group's rewards are equal.
std::vector<Trajectory> eight_episodes() {
  std::vector<Trajectory> batch = four_episodes("sampled");
  for (Trajectory more : four_episodes("sampled", 22)) {
    more.group += 10;
    batch.push_back(std::move(more));
  }
  batch[4].reward = batch[5].reward = 0.5;
  return batch;
}

TEST_CASE("with one step per batch the old log-probabilities are the trainer's own, and cost nothing") {
  const auto type = GENERATE(DType::f64, DType::f32, DType::bf16, DType::f16);
  Run run(learner_config("grpo", type), Scope::token, true);
  const Metrics metrics = run.learner.step(eight_episodes());
  REQUIRE(!run.seen.empty());
  for (const Seen& seen : run.seen) {
    CHECK(seen.log_p_old == seen.drawn_log_p);
    CHECK(seen.steps_since_old == 0);
  }
  CHECK(!metrics.contains("time/pi_old"));
}

TEST_CASE("old log-probabilities are those of the weights at the start of the batch, whatever minibatch and epoch") {
  const auto type = GENERATE(DType::f64, DType::bf16);
  const auto scope = GENERATE(Scope::token, Scope::batch);
  const std::vector<Trajectory> batch = eight_episodes();
  LearnerConfig config = learner_config("grpo", type);
  // The sampler's log-probability of a token tells tokens apart here.
  std::map<double, double> start;
  {
    Run run(config, Scope::token, false);
    run.learner.gradient(batch);
    for (const Seen& seen : run.seen) {
      CHECK(seen.log_p_old.empty());
      for (size_t t = 0; t < seen.log_q.size(); ++t) start[seen.log_q[t]] = seen.drawn_log_p[t];
    }
  }
  REQUIRE(start.size() == 32);
  config.minibatches = 4;
  config.epochs = 2;
  Run run(config, scope, true);
  const Metrics metrics = run.learner.step(batch);
  CHECK(metrics.at("time/pi_old") > 0.0);
  std::set<int64_t> steps;
  double moved = 0.0;
  size_t tokens = 0;
  for (const Seen& seen : run.seen) {
    REQUIRE(seen.log_p_old.size() == seen.log_q.size());
    for (size_t t = 0; t < seen.log_q.size(); ++t) {
      CHECK(seen.log_p_old[t] == start.at(seen.log_q[t]));
      moved = std::max(moved, std::abs(seen.log_p_old[t] - seen.drawn_log_p[t]));
    }
    steps.insert(seen.steps_since_old);
    tokens += seen.log_q.size();
  }
  CHECK(moved > 1e-3);
  // The minibatch whose only group has equal rewards takes no step.
  CHECK(steps.size() == 6);
  CHECK(*steps.begin() == 0);
  CHECK(tokens >= 32 + 29);
}

TEST_CASE("a sample that is filtered as overlong is shown to no correction, and stands in the metrics") {
  const auto scope = GENERATE(Scope::token, Scope::batch);
  const auto denominator = GENERATE(as<std::string>{}, "kept", "renormalized");
  std::vector<Trajectory> batch = eight_episodes();
  LearnerConfig config = learner_config("grpo", DType::f64);
  config.denominator = denominator;
  const auto shown = [&](const std::string& overlong) {
    config.overlong = overlong;
    Run run(config, scope, false);
    const Metrics metrics = run.learner.gradient(batch);
    CHECK(metrics.at("tokens") == 32.0);
    std::set<double> log_q;  // which tells tokens apart
    for (const Seen& seen : run.seen) log_q.insert(seen.log_q.begin(), seen.log_q.end());
    return std::pair(log_q.size(), gradients(run.parameters));
  };
  batch[3].truncated = true;  // of 10 tokens
  const auto kept = shown("keep"), filtered = shown("filter");
  CHECK(kept.first == 32);
  CHECK(filtered.first == 22);
  // What is left has the gradient that it has when the filtered sample says something else.
  for (float& x : batch[3].records.log_q) x -= 1.0f;
  batch[3].records.tokens[4] = (batch[3].records.tokens[4] + 1) % 13;
  batch[3].tokens[batch[3].tokens.size() - 6] = batch[3].records.tokens[4];
  CHECK(shown("filter") == filtered);
  CHECK(shown("keep").second != kept.second);
}

TEST_CASE("a filter is shown the sampler's log-probabilities where the sampler's are meant") {
  // Old equals current; the sampler is far away. A rule on p / q must see that, a rule on p / pi_old must not.
  std::vector<Trajectory> batch = eight_episodes();
  for (Trajectory& sample : batch)
    for (float& log_q : sample.records.log_q) log_q -= 9.0f;
  Run run(learner_config("grpo", DType::f64), Scope::token, true);
  run.learner.step(batch);
  for (const Seen& seen : run.seen) {
    for (size_t t = 0; t < seen.log_q.size(); ++t) {
      CHECK(seen.drawn_log_p[t] - seen.log_p_old[t] == 0.0);
      CHECK(seen.drawn_log_p[t] - seen.log_q[t] > 5.0);
    }
  }
  LearnerConfig config = learner_config("mis", DType::f64);
  config.minibatches = 2;
  Parameters parameters = masters(tiny_model(), DType::f64);
  Learner mis(tiny_model(), parameters, config);
  CHECK(mis.step(batch).at("ratio/masked") == 1.0);
}

TEST_CASE("batch scope: one look at every sample of the step, those without an advantage included") {
  const std::vector<Trajectory> batch = eight_episodes();
  LearnerConfig config = learner_config("grpo", DType::f64);
  for (const int64_t tokens : {1000, 16, 1}) {
    config.micro_batch_tokens = tokens;
    Run run(config, Scope::batch, false);
    const Metrics metrics = run.learner.gradient(batch);
    REQUIRE(run.seen.size() == 1);
    CHECK(run.seen[0].sequence == std::vector<int64_t>{0, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3,
                                                       4, 5, 5, 6, 6, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7});
    CHECK(std::count(run.seen[0].advantage.begin(), run.seen[0].advantage.end(), 0.0) == 3);
    CHECK(metrics.contains("spy/log_p_median"));
    CHECK(metrics.contains("ratio/masked"));
    CHECK(metrics.contains("entropy"));
  }
}

TEST_CASE("no split into micro-batches changes a bit, in any scope") {
  const auto scope = GENERATE(Scope::token, Scope::sequence, Scope::batch);
  const auto type = GENERATE(DType::f64, DType::f32, DType::bf16);
  std::vector<Trajectory> batch = eight_episodes();
  batch[6].temperature = batch[7].temperature = 0.7;
  LearnerConfig config = learner_config("grpo", type);
  config.minibatches = 2;
  config.epochs = 2;
  std::map<std::string, uint64_t> whole;
  Metrics metrics;
  for (const int64_t tokens : {1000, 16, 1}) {
    config.micro_batch_tokens = tokens;
    Run run(config, scope, true);
    Metrics found = run.learner.step(batch);
    found.erase("time/pi_old");
    if (tokens == 1000) whole = run.parameters.fingerprints(), metrics = found;
    CHECK(run.parameters.fingerprints() == whole);
    CHECK(found == metrics);
  }
}

TEST_CASE("batch scope gives the gradient of the coefficients of the whole") {
  // The spy's weight is a constant over the batch, so its gradient is that of plain policy gradient, scaled.
  const TransformerConfig model = tiny_model();
  const std::vector<Trajectory> batch = eight_episodes();
  const LearnerConfig config = learner_config("grpo", DType::f64);
  Run run(config, Scope::batch, false);
  run.learner.gradient(batch);
  double mean = 0.0;
  for (const double log_p : run.seen[0].drawn_log_p) mean += log_p / 32.0;
  Parameters plain = masters(model, DType::f64);
  Learner grpo(model, plain, config);
  grpo.gradient(batch);
  std::vector<double> expected = gradients(plain);
  for (double& x : expected) x *= 1.0 + mean;
  CHECK(reference::largest(expected) > 1e-3);
  CHECK(reference::largest_difference(gradients(run.parameters), expected) <= 1e-13 * reference::largest(expected));
}

TEST_CASE("sampler groups and ages reach the correction, token by token") {
  const auto scope = GENERATE(Scope::token, Scope::batch);
  std::vector<Trajectory> batch = four_episodes("sampled");
  batch[0].sampler = "h100";
  batch[1].sampler = batch[2].sampler = "b200";
  batch[3].sampler = "h100";
  for (Trajectory& sample : batch) sample.batch_version = 7;
  batch[0].records.versions = {7};
  batch[1].records.versions = {5, 6};
  batch[2].records.versions = {9, 7, 0};  // a version from the future has no age
  Run run(learner_config("grpo", DType::f64), scope, false);
  run.learner.gradient(batch);
  REQUIRE(run.seen.size() == 1);
  const Seen& seen = run.seen[0];
  CHECK(seen.group_names == std::vector<std::string>{"b200", "h100"});
  CHECK(std::vector<int64_t>(seen.sampler_group.begin(), seen.sampler_group.begin() + 7) ==
        std::vector<int64_t>{1, 0, 0, 0, 0, 0, 1});
  CHECK(std::vector<int64_t>(seen.staleness.begin(), seen.staleness.begin() + 7) ==
        std::vector<int64_t>{0, 2, 1, 0, 0, 7, 7});
}

}  // namespace
}  // namespace motley::algos
