#include "actors/evaluation.h"

#include "actors/evaluator.h"
#include "actors/policy/episode.h"
#include "tests/actors/tiny_run.h"

namespace motley::actors {
namespace {

TEST_CASE("pass@k is unbiased: four samples of which two are right give 5/6 at k = 2") {
  CHECK(pass_at_k(4, 2, 2) == Approx(5.0 / 6.0).epsilon(1e-15));
  CHECK(pass_at_k(4, 0, 4) == 0.0);
  CHECK(pass_at_k(4, 1, 4) == 1.0);
  CHECK(pass_at_k(4, 4, 1) == 1.0);
  CHECK(pass_at_k(10, 3, 1) == Approx(0.3).epsilon(1e-14));
  // Against counting: 1 - C(n-c, k) / C(n, k).
  CHECK(pass_at_k(7, 2, 3) == Approx(1.0 - 10.0 / 35.0).epsilon(1e-14));
}

struct EvaluationSetup {
  Experiment experiment = tiny_experiment(false);
  std::shared_ptr<const SamplerWeights> weights;
  std::shared_ptr<const envs::TaskMix> tasks;
  envs::Tokenizer tokenizer;

  explicit EvaluationSetup(TestTask::RewardFunction reward, int64_t max_positions = 64, size_t questions = 1) {
    std::vector<envs::TaskMix::Entry> entries;
    entries.push_back({"test", std::make_unique<TestTask>(std::move(reward), questions), 1.0});
    tasks = std::make_shared<const envs::TaskMix>(std::move(entries), 1);
    tokenizer = tasks->tokenizer();
    TransformerConfig model = experiment.model.config;
    model.vocabulary = tokenizer.size();
    model.max_positions = max_positions;
    model = model.resolved();
    weights =
        std::make_shared<SamplerWeights>(model, Parameters::initialize(model, 3), *kernels::find_profile("bf16"), 0);
  }
  EvaluationResult run(EvaluationRequest request, int64_t slots) const {
    request.threads = 1;  // rewards of tests keep records
    return evaluate(weights, *tasks, tokenizer, request, slots).at(0);
  }
};

TEST_CASE("an episode of several questions goes on after every reply that ended, as far as the model has room") {
  std::vector<std::string> scored;
  const auto always_right = [&](std::string_view reply) {
    scored.emplace_back(reply);
    return envs::Reward{1.0, {}, false};
  };
  EvaluationRequest request;
  request.prompts = 40;
  request.samples = 1;
  request.k = {1};
  request.max_tokens = 6;
  const EvaluationSetup one(always_right), three(always_right, 64, 3), no_room(always_right, 5, 3);
  one.run(request, 64);
  const std::vector<std::string> first = scored;
  REQUIRE(first.size() == 40);
  scored.clear();
  const EvaluationResult result = three.run(request, 64);
  const std::vector<std::string> replies = scored;
  // Every reply is right: an episode is worth a third of the number of its replies, and 1 only if it had all three.
  CHECK(result.mean_reward == Approx(static_cast<double>(replies.size()) / 3.0 / 40.0));
  CHECK(replies.size() > 40);
  CHECK(replies.size() < 120);
  CHECK(result.pass_at.at(1).value > 0.0);
  CHECK(result.pass_at.at(1).value < result.mean_reward);
  CHECK(result.turns == Approx(static_cast<double>(replies.size()) / 40.0));
  CHECK(result.failed == 0);
  for (const std::string& reply : first) CHECK(std::count(replies.begin(), replies.end(), reply) > 0);
  scored.clear();
  CHECK(three.run(request, 1).mean_reward == result.mean_reward);
  CHECK(std::multiset<std::string>(scored.begin(), scored.end()) ==
        std::multiset<std::string>(replies.begin(), replies.end()));
  // Two tokens of prompt and at least one of reply: five positions hold no second question.
  scored.clear();
  CHECK(no_room.run(request, 64).mean_reward == Approx(1.0 / 3.0));
  CHECK(scored.size() == 40);
}

TEST_CASE("an evaluation depends on its seed, not on the slots") {
  const EvaluationSetup setup([](std::string_view reply) {
    return envs::Reward{reply.starts_with("2") ? 1.0 : 0.0, {}, reply.empty()};
  });
  EvaluationRequest request;
  request.prompts = 5;
  request.samples = 4;
  request.max_tokens = 4;
  request.seed = 9;
  const EvaluationResult one = setup.run(request, 1), many = setup.run(request, 64);
  CHECK(one.prompts == 5);
  CHECK(one.samples == 20);
  CHECK(one.failed == 0);
  for (const int64_t k : request.k) CHECK(one.pass_at.at(k).value == many.pass_at.at(k).value);
  CHECK(one.mean_reward == Approx(many.mean_reward).epsilon(1e-12));
  CHECK(one.pass_at.at(4).value >= one.pass_at.at(1).value);
  CHECK(one.mean_reward == Approx(one.pass_at.at(1).value));
}

TEST_CASE("a failed score is counted, and is not a wrong answer") {
  int calls = 0;
  const EvaluationSetup setup([&](std::string_view) -> envs::Reward {
    if (++calls % 2 == 0) throw std::runtime_error("no score");
    return {1.0, {}, false};
  });
  EvaluationRequest request;
  request.prompts = 3;
  request.samples = 4;
  request.max_tokens = 2;
  request.k = {1, 4};
  const EvaluationResult result = setup.run(request, 8);
  CHECK(result.failed == 6);
  CHECK(result.samples == 6);
  CHECK(result.mean_reward == 1.0);
  CHECK(result.pass_at.at(1).value == 1.0);
  CHECK(result.pass_at.at(1).standard_error == 0.0);
  CHECK(result.pass_at.at(4).problems == 0);  // no problem has four valid samples left
  CHECK(std::isnan(result.pass_at.at(4).value));
  CHECK(result.ends.at("failed") == 6);
  CHECK_THAT(result.first_failure, Catch::Matchers::Contains("no score"));
}

TEST_CASE("an evaluation stops when asked, and a prompt that is too long fails alone") {
  const auto right = [](std::string_view) { return envs::Reward{1.0, {}, false}; };
  EvaluationRequest request;
  request.prompts = 2;
  const EvaluationSetup setup(right);
  CHECK(evaluate(setup.weights, *setup.tasks, setup.tokenizer, request, 4, [] { return true; }).empty());
  const EvaluationResult result = EvaluationSetup(right, 1).run(request, 4);
  CHECK(result.failed == 8);
  CHECK(result.samples == 0);
}

TEST_CASE("the episode grows by exactly the tokens that were read or drawn") {
  algos::Trajectory episode;
  append_read(episode, {1, 2});
  append_drawn(episode, {.tokens = {3}, .log_q = {-1}, .versions = {0}, .offsets = {0, 0}, .log_tail = {0}});
  append_read(episode, {4});
  append_drawn(episode,
               {.tokens = {5, 6}, .log_q = {-1, -2}, .versions = {1, 1}, .offsets = {0, 0, 0}, .log_tail = {0, 0}});
  CHECK(episode.tokens == std::vector<int32_t>{1, 2, 3, 4, 5, 6});
  CHECK(episode.loss_mask == std::vector<uint8_t>{0, 0, 1, 0, 1, 1});
  CHECK(episode.records.tokens == std::vector<int32_t>{3, 5, 6});
  CHECK(episode.inconsistency(10).empty());
}

TEST_CASE("sessions of different prompts, epochs and samples draw differently") {
  std::set<uint64_t> seen;
  for (uint64_t epoch = 0; epoch < 3; ++epoch)
    for (uint64_t index = 0; index < 10; ++index)
      for (uint64_t sample = 0; sample < 8; ++sample) {
        envs::TaskMix::Pick pick;
        pick.epoch = epoch;
        pick.index = index;
        seen.insert(random_session(pick, sample));
      }
  CHECK(seen.size() == 240);
}

}  // namespace
}  // namespace motley::actors
