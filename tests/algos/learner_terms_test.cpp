// What stands beside the correction: KL to a reference policy, entropy, denominators, shaped rewards, the moving
// baseline. Gradients against finite differences of exact expectations in float64.
#include <catch2/catch.hpp>

#include "tests/algos/dense_surrogate.h"

namespace motley::algos {
namespace {

using Catch::Matchers::Contains;
using reference::largest;

/// One prompt and every token of the vocabulary as its answer, drawn from a uniform sampler: with weights p / q, the
/// mean over these samples is the exact expectation over the policy.
std::vector<Trajectory> every_answer() {
  const TransformerConfig model = tiny_model();
  std::vector<Trajectory> batch;
  for (int32_t v = 0; v < model.vocabulary; ++v) {
    Trajectory episode;
    episode.group = 1;
    episode.sampler = "a";
    episode.tokens = {3, 1, 4, v};
    episode.loss_mask = {0, 0, 0, 1};
    episode.records.tokens = {v};
    episode.records.log_q = {static_cast<float>(-std::log(13.0))};
    episode.records.versions = {0};
    episode.records.offsets = {0, 0};
    episode.records.log_tail = {0.0f};
    batch.push_back(std::move(episode));
  }
  return batch;
}

/// KL(p || ref), or KL(ref || p), of the answer's distribution.
double exact_kl(const DenseSurrogate& dense, const Trajectory& any, const Parameters& p, const Parameters& ref,
                bool forward) {
  const std::vector<double> log_p = dense.log_probs(p, any)[0], log_ref = dense.log_probs(ref, any)[0];
  double sum = 0.0;
  for (size_t v = 0; v < log_p.size(); ++v)
    sum += forward ? std::exp(log_ref[v]) * (log_ref[v] - log_p[v]) : std::exp(log_p[v]) * (log_p[v] - log_ref[v]);
  return sum;
}

/// Three numbers of every tensor, by central differences of `value`; `found` is a gradient in file order.
template <class Value>
void check_gradient(const std::vector<double>& found, Parameters& parameters, const Value& value) {
  REQUIRE(largest(found) > 1e-4);
  size_t first = 0;
  for (const std::string& name : parameters.names()) {
    const std::span<double> values = parameters.at(name).span<double>();
    for (const size_t i : {size_t{0}, values.size() / 2, values.size() - 1}) {
      // Errors of h^2 f''' / 6 and 1e-16 f / h: both below 1e-9. log q is a float: 3e-8 relative.
      const double h = 1e-5, kept = values[i];
      values[i] = kept + h;
      const double up = value();
      values[i] = kept - h;
      const double down = value();
      values[i] = kept;
      CAPTURE(name, i);
      CHECK(found[first + i] == Approx((up - down) / (2 * h)).margin(1e-6 * largest(found) + 1e-9));
    }
    first += values.size();
  }
}

struct KlRun {
  TransformerConfig model = tiny_model();
  std::vector<Trajectory> batch = every_answer();
  Parameters parameters = masters(model, DType::f64);
  std::shared_ptr<const Parameters> ref =
      std::make_shared<const Parameters>(Parameters::initialize(model, 77, DType::f64));
  std::unique_ptr<Learner> learner;
  DenseSurrogate dense{model, batch, "grpo"};

  explicit KlRun(const std::string& kl) {
    LearnerConfig config = learner_config("tis", DType::f64);
    config.correction_parameters = {{"tis.cap", 100.0}};
    config.kl = kl;
    config.kl_coefficient = 1.0;
    config.kl_ratio_cap = 100.0;
    learner = std::make_unique<Learner>(model, parameters, config);
    learner->set_reference(ref);
  }
};

TEST_CASE("reward 0 everywhere, coefficient 1: the exact KL's gradient, and the policy goes to the reference") {
  const auto kl = GENERATE(as<std::string>{}, "k1", "k2", "k3");
  CAPTURE(kl);
  KlRun run(kl);
  const bool forward = kl == "k3";
  const Metrics metrics = run.learner->gradient(run.batch);
  CHECK(metrics.contains("time/reference"));
  CHECK(metrics.contains("kl/reference"));
  CHECK(metrics.at("kl/reference_k3") > 0.0);
  CHECK(metrics.contains("reward/shaped") == (kl == "k1"));
  check_gradient(gradients(run.parameters), run.parameters,
                 [&] { return exact_kl(run.dense, run.batch[0], run.parameters, *run.ref, forward); });

  const double before = exact_kl(run.dense, run.batch[0], run.parameters, *run.ref, forward);
  for (int i = 0; i < 8; ++i) run.learner->step(run.batch);
  const double after = exact_kl(run.dense, run.batch[0], run.parameters, *run.ref, forward);
  CHECK(after < 0.5 * before);
}

TEST_CASE("at the reference no KL term has a gradient") {
  const auto kl = GENERATE(as<std::string>{}, "k1", "k2", "k3");
  KlRun run(kl);
  run.learner->set_reference(std::make_shared<const Parameters>(run.parameters.clone()));
  const Metrics metrics = run.learner->gradient(run.batch);
  CHECK(metrics.at("kl/reference") == 0.0);
  CHECK(metrics.at("kl/reference_k3") == 0.0);
  CHECK(largest(gradients(run.parameters)) == 0.0);
}

TEST_CASE("the KL term is over the candidate set, as the policy's is") {
  // Weights that differ in nothing but the logit of an id outside the candidate set: no KL over the set.
  const TransformerConfig model = tiny_model();
  std::vector<Trajectory> batch = every_answer();
  batch.resize(4);
  for (Trajectory& episode : batch) {
    episode.records.ids = {0, 1, 2, 3};
    episode.records.id_log_q.assign(4, static_cast<float>(-std::log(4.0)));
    episode.records.offsets = {0, 4};
    episode.records.log_tail = {-HUGE_VALF};
  }
  Parameters parameters = masters(model, DType::f64);
  Parameters other = parameters.clone();
  const std::span<double> head = other.at(head_weight_name(model)).span<double>();
  for (int64_t d = 0; d < model.width; ++d) head[static_cast<size_t>(9 * model.width + d)] += 0.5;
  LearnerConfig config = learner_config("grpo", DType::f64);
  config.kl = "k2";
  config.kl_coefficient = 1.0;
  const auto kl = [&] {
    Learner learner(model, parameters, config);
    learner.set_reference(std::make_shared<const Parameters>(other.clone()));
    return learner.gradient(batch).at("kl/reference");
  };
  CHECK(kl() == 0.0);
  for (int64_t d = 0; d < model.width; ++d) head[static_cast<size_t>(2 * model.width + d)] += 0.5;
  CHECK(kl() != 0.0);
}

TEST_CASE("the weight on the KL term is p / q, capped, or 1") {
  std::vector<double> k2[3];
  double ratio = 0.0;
  const double caps[] = {0.0, 1e-9, 100.0};
  for (int i = 0; i < 3; ++i) {
    KlRun run("k2");
    LearnerConfig config = learner_config("grpo", DType::f64);
    config.kl = "k2";
    config.kl_coefficient = 1.0;
    config.kl_ratio_cap = caps[i];
    std::vector<Trajectory> one{run.batch[5]};
    ratio = 13.0 * std::exp(run.dense.log_probs(run.parameters, one[0])[0][5]);
    Learner learner(run.model, run.parameters, config);
    learner.set_reference(run.ref);
    learner.gradient(one);
    k2[i] = gradients(run.parameters);
  }
  REQUIRE(largest(k2[0]) > 1e-4);
  CHECK(largest(k2[1]) == Approx(1e-9 * largest(k2[0])).epsilon(1e-6));
  CHECK(largest(k2[2]) == Approx(ratio * largest(k2[0])).epsilon(1e-6));
}

TEST_CASE("the entropy bonus has the gradient of the mean entropy, over the support of the policy") {
  const auto style = GENERATE(as<std::string>{}, "top_k", "candidates");
  const TransformerConfig model = tiny_model();
  std::vector<Trajectory> batch = four_episodes(style);
  for (Trajectory& episode : batch) episode.reward = 0.0;
  batch[0].temperature = batch[1].temperature = 0.8;
  LearnerConfig config = learner_config("mis", DType::f64);
  config.entropy_coefficient = 0.7;
  const std::vector<double> found = learner_gradient(model, config, batch);
  Parameters parameters = masters(model, DType::f64);
  const DenseSurrogate dense(model, batch, "grpo");
  check_gradient(found, parameters, [&] {
    double sum = 0.0;
    for (const Trajectory& episode : batch) {
      for (const std::vector<double>& log_p : dense.log_probs(parameters, episode))
        for (const double x : log_p) sum += std::isinf(x) ? 0.0 : std::exp(x) * x;
    }
    return 0.7 * sum / 16.0;
  });
}

TEST_CASE("renormalized denominators count what the correction lets through") {
  const auto reduction = GENERATE(as<std::string>{}, "token_mean", "sequence_mean", "prompt_mean");
  CAPTURE(reduction);
  const TransformerConfig model = tiny_model();
  const std::vector<Trajectory> batch = four_episodes("sampled");
  Parameters parameters = masters(model, DType::f64);
  DenseSurrogate surrogate(model, batch, "mis");
  std::vector<double> open(4, 0.0);
  for (size_t i = 0; i < 4; ++i) {
    const auto log_p = surrogate.log_probs(parameters, batch[i]);
    for (size_t t = 0; t < log_p.size(); ++t) {
      const double r = std::exp(log_p[t][static_cast<size_t>(batch[i].records.tokens[t])] - batch[i].records.log_q[t]);
      open[i] += r >= 0.5 && r <= 5.0 ? 1.0 : 0.0;
    }
  }
  const double all = open[0] + open[1] + open[2] + open[3];
  REQUIRE(all > 0.0);
  REQUIRE(all < 16.0);
  std::vector<double> factors(4);
  double units = 0.0;
  for (size_t i = 0; i < 4; ++i) {
    const double pair = open[i] + open[i ^ 1];
    units += reduction == "sequence_mean" ? (open[i] > 0.0 ? 1.0 : 0.0) : (pair > 0.0 ? 0.5 : 0.0);
    factors[i] = reduction == "token_mean" ? all : reduction == "sequence_mean" ? open[i] : pair;
  }
  for (double& x : factors) x = x == 0.0 ? 0.0 : 1.0 / (x * (reduction == "token_mean" ? 1.0 : units));
  surrogate.set_factors(factors);
  surrogate.freeze(parameters);
  LearnerConfig config = learner_config("mis", DType::f64);
  config.reduction = reduction;
  config.denominator = "renormalized";
  check_gradient(learner_gradient(model, config, batch), parameters, [&] { return surrogate.value(parameters); });
}

TEST_CASE("overlong replies that are filtered count in the comparison, and in nothing that is trained") {
  const TransformerConfig model = tiny_model();
  std::vector<Trajectory> batch = four_episodes("sampled");
  batch[3].truncated = true;
  LearnerConfig config = learner_config("mis", DType::f64);
  config.overlong = "filter";
  config.entropy_coefficient = 0.0;
  DenseSurrogate surrogate(model, batch, "mis");
  Parameters parameters = masters(model, DType::f64);
  surrogate.set_factors({1.0 / 6, 1.0 / 6, 1.0 / 6, 0.0});
  surrogate.freeze(parameters);
  check_gradient(learner_gradient(model, config, batch), parameters, [&] { return surrogate.value(parameters); });
  Parameters again = masters(model, DType::f64);
  Learner learner(model, again, config);
  CHECK(learner.gradient(batch).at("overlong/filtered") == 0.25);
}

TEST_CASE("the soft penalty is added to the reward before samples are compared") {
  const TransformerConfig model = tiny_model();
  std::vector<Trajectory> batch = four_episodes("sampled");  // 1, 2, 3 and 10 tokens
  LearnerConfig config = learner_config("grpo", DType::f64);
  config.overlong = "penalty";
  config.max_tokens = 4;
  config.overlong_tokens = 2;
  Parameters parameters = masters(model, DType::f64);
  Learner learner(model, parameters, config);
  const Metrics metrics = learner.gradient(batch);
  CHECK(metrics.at("overlong/penalty") == (-0.5 - 1.0) / 4.0);
  CHECK(metrics.at("reward/mean") == 2.25 / 4.0);  // the task's
  CHECK(metrics.at("reward/shaped") == 0.75 / 4.0);
  const std::vector<double> found = gradients(parameters);
  config.overlong = "keep";
  batch[2].reward -= 0.5;
  batch[3].reward -= 1.0;
  CHECK(learner_gradient(model, config, batch) == found);
}

TEST_CASE("no split into micro-batches changes a bit, with every term on") {
  const auto type = GENERATE(DType::f64, DType::bf16);
  const auto kl = GENERATE(as<std::string>{}, "k1", "k2", "k3");
  const TransformerConfig model = tiny_model();
  std::vector<Trajectory> batch = four_episodes("top_k");
  batch[1].truncated = true;
  batch[2].temperature = 0.7;
  LearnerConfig config = learner_config("sc+mis", type);
  config.denominator = "renormalized";
  config.overlong = "filter";
  config.kl = kl;
  config.kl_coefficient = 0.3;
  config.entropy_coefficient = 0.1;
  config.minibatches = 2;
  config.epochs = 2;
  const auto ref = std::make_shared<const Parameters>(
      Parameters::initialize(model, 77, type == DType::f64 ? DType::f64 : DType::f32));
  std::map<std::string, uint64_t> whole;
  Metrics metrics;
  for (const int64_t tokens : {1000, 16, 1}) {
    config.micro_batch_tokens = tokens;
    Parameters parameters = masters(model, type);
    Learner learner(model, parameters, config);
    learner.set_reference(ref);
    Metrics found = learner.step(batch);
    std::erase_if(found, [](const auto& entry) { return entry.first.starts_with("time/"); });
    if (tokens == 1000) whole = parameters.fingerprints(), metrics = found;
    CHECK(parameters.fingerprints() == whole);
    CHECK(found == metrics);
  }
}

TEST_CASE("reinforce: groups of one, compared with the batches before; a resume goes on with the same bits") {
  const TransformerConfig model = tiny_model();
  LearnerConfig config = learner_config("grpo", DType::f64);
  config.advantage = "reinforce";
  config.baseline_decay = 0.5;
  const auto ones = [](uint64_t seed) {
    std::vector<Trajectory> batch = four_episodes("sampled", seed);
    for (size_t i = 0; i < batch.size(); ++i) batch[i].group = i;
    return batch;
  };
  Parameters parameters = masters(model, DType::f64);
  Learner whole(model, parameters, config);
  const Metrics first = whole.step(ones(1));
  CHECK(first.at("advantage/baseline") == 2.25 / 4.0);
  CHECK(first.at("advantage/zero_groups") == 0.0);
  Parameters halfway = parameters.clone();
  const std::map<std::string, std::string> state = whole.state();
  const AdamW::State optimizer = whole.optimizer().state();
  auto second = ones(2);
  second[0].reward = 0.0;  // another mean
  whole.gradient(second);  // looks, and moves nothing
  CHECK(whole.state() == state);
  whole.step(second);
  CHECK(whole.step(ones(3)).at("advantage/baseline") == 0.5 * (2.25 / 4.0) + 0.5 * (1.25 / 4.0));

  Learner resumed(model, halfway, config);
  resumed.optimizer().restore(optimizer);
  resumed.set_steps(1);
  resumed.restore(state);
  resumed.step(second);
  resumed.step(ones(3));
  CHECK(halfway.fingerprints() == parameters.fingerprints());
  CHECK_THROWS_AS(resumed.restore({{"baseline", "x"}}), std::invalid_argument);
}

TEST_CASE("names that are unknown, and a KL term without a reference, are refused") {
  const TransformerConfig model = tiny_model();
  const auto refused = [&](auto change, const char* why) {
    LearnerConfig config = learner_config("grpo");
    change(config);
    Parameters parameters = masters(model);
    CHECK_THROWS_WITH(Learner(model, parameters, config), Contains(why));
  };
  refused([](auto& c) { c.denominator = "renormalised"; }, "nearest: \"renormalized\"");
  refused([](auto& c) { c.overlong = "drop"; }, "unknown overlong");
  refused([](auto& c) { c.kl = "k4"; }, "unknown kl");
  refused([](auto& c) { c.baseline_decay = 1.0; }, "decay");
  LearnerConfig config = learner_config("grpo");
  config.kl = "k2";
  Parameters parameters = masters(model);
  Learner learner(model, parameters, config);
  CHECK_THROWS_WITH(learner.step(four_episodes("sampled")), Contains("reference"));
}

}  // namespace
}  // namespace motley::algos
