// Episodes of several turns: each turn its own advantage where turns are compared, one for all of them where episodes
// are, and nothing at the observations between them.
#include <catch2/catch.hpp>

#include "algos/sample_selection.h"
#include "tests/algos/episodes.h"
#include "tests/algos/reference_learner.h"

namespace motley::algos {
namespace {

using Catch::Contains;
using reference::largest;
using reference::largest_difference;
using Advantages = std::vector<std::vector<double>>;

/// A prompt of 3, and two tokens of observation between turns.
Trajectory episode(kernels::RandomStream& random, const std::vector<Turn>& turns, uint64_t group,
                   const std::string& style = "sampled") {
  size_t tokens = 0;
  double reward = 0.0;
  for (const Turn& turn : turns) tokens += turn.tokens, reward += turn.reward;
  Trajectory whole = random_episode(random, style, 3, tokens, group, reward);
  whole.turns = turns;
  size_t place = 3;
  for (size_t k = 0; k + 1 < turns.size(); ++k) {
    place += turns[k].tokens;
    whole.tokens.insert(whole.tokens.begin() + static_cast<int64_t>(place), {1, static_cast<int32_t>(k)});
    whole.loss_mask.insert(whole.loss_mask.begin() + static_cast<int64_t>(place), 2, 0);
    place += 2;
  }
  REQUIRE(whole.inconsistency(tiny_model().vocabulary).empty());
  return whole;
}

/// A group of 2 + 5 tokens each, and one of 1, 2 and 3 turns, the second of which begins with a turn of no tokens.
std::vector<Trajectory> two_groups(const std::string& style = "sampled") {
  kernels::RandomStream random({31, kernels::Purpose::data, 0, 0});
  return {episode(random, {{2, 0.25}, {5, 0.5}}, 1, style), episode(random, {{2, 0.0}, {5, 1.0}}, 1, style),
          episode(random, {{3, 0.5}}, 2, style), episode(random, {{0, 0.25}, {4, 0.25}}, 2, style),
          episode(random, {{1, 0.0}, {2, 1.0}, {3, -0.5}}, 2, style)};
}
/// By hand. Returns of group 1: 0.75, 0.5 and 1, 1; of group 2: 0.5; 0.5, 0.25; 0.5, 0.5, -0.5. What only one sample
/// of a group has is compared with nothing.
const Advantages kByTurn{{-0.125, -0.125, -0.25, -0.25, -0.25, -0.25, -0.25},
                         {0.125, 0.125, 0.25, 0.25, 0.25, 0.25, 0.25},
                         {0.0, 0.0, 0.0},
                         {-0.125, -0.125, -0.125, -0.125},
                         {0.0, 0.125, 0.125, 0.0, 0.0, 0.0}};

LearnerConfig by_turn(const std::string& correction = "grpo", DType type = DType::f64) {
  LearnerConfig config = learner_config(correction, type);
  config.advantage_level = "turn";
  return config;
}

std::vector<double> gradient_of(const LearnerConfig& config, const std::vector<Trajectory>& batch) {
  Parameters parameters = masters(tiny_model(), config.profile.output);
  Learner learner(tiny_model(), parameters, config);
  learner.gradient(batch);
  return gradients(parameters);
}

/// The gradient of the token mean of -A log p, from dense distributions.
std::vector<double> expected_gradient(const std::vector<Trajectory>& batch, const Advantages& advantage) {
  Parameters parameters = masters(tiny_model(), DType::f64);
  parameters.set_requires_grad(true);
  const DenseTrainer trainer(tiny_model(), plain_profile(DType::f64));
  const std::vector<double> ones(batch.size(), 1.0);
  const auto dense = trainer.tokens(parameters, batch, ones);
  size_t tokens = 0;
  for (const Trajectory& sample : batch) tokens += sample.records.size();
  const auto slopes = reference::logit_gradients(dense, [&](const reference::Terms& terms) {
    reference::Scalar loss;
    for (size_t s = 0; s < terms.size(); ++s)
      for (size_t t = 0; t < terms[s].size(); ++t)
        loss = loss - terms[s][t].log_py() * (advantage[s][t] / static_cast<double>(tokens));
    return loss;
  });
  trainer.propagate(parameters, batch, slopes, ones);
  return gradients(parameters);
}

TEST_CASE("turns of 2 and 5 tokens: each its own advantage, from what was earned from it on") {
  const std::vector<Trajectory> batch = two_groups();
  SampleSelection selection = select_samples(batch, tiny_model().vocabulary, 32);
  std::vector<std::vector<Turn>> turns;
  for (const Trajectory& sample : batch) turns.push_back(sample.all_turns());
  set_advantages(selection, "dr_grpo", turns, 0.0);
  CHECK(selection.advantage == kByTurn);
  CHECK(selection.zero_groups == 0);
  const auto found = gradient_of(by_turn(), batch), expected = expected_gradient(batch, kByTurn);
  CHECK(largest(expected) > 1e-3);
  CHECK(largest_difference(found, expected) <= 1e-10 * largest(expected));
  // The other comparisons, turn by turn as well.
  set_advantages(selection, "grpo", turns, 0.0);
  CHECK(selection.advantage[1][2] == Approx(std::sqrt(0.5)).epsilon(1e-5));
  set_advantages(selection, "rloo", turns, 0.0);
  CHECK(selection.advantage[0][1] == -0.25);
  CHECK(selection.advantage[0][2] == -0.5);
}

TEST_CASE("where turns are not asked for, all tokens of an episode have the advantage of its reward") {
  const std::vector<Trajectory> batch = two_groups();  // rewards 0.75 and 1; 0.5, 0.5, 0.5
  const Advantages by_episode{std::vector<double>(7, -0.125), std::vector<double>(7, 0.125),
                              std::vector<double>(3, 0.0), std::vector<double>(4, 0.0), std::vector<double>(6, 0.0)};
  const auto found = gradient_of(learner_config("grpo", DType::f64), batch);
  const auto expected = expected_gradient(batch, by_episode);
  CHECK(largest(expected) > 1e-3);
  CHECK(largest_difference(found, expected) <= 1e-10 * largest(expected));
}

TEST_CASE("an answer that a tool interrupts is one answer: all its tokens have one advantage, the tool's have none") {
  // A A [tool tool] A, rewarded at the end; and a group that is right from the start, so that nobody is better.
  kernels::RandomStream random({32, kernels::Purpose::data, 0, 0});
  std::vector<Trajectory> batch{episode(random, {{2, 0.0}, {1, 1.0}}, 1), episode(random, {{2, 0.0}, {1, 0.0}}, 1)};
  const Advantages advantage{{0.5, 0.5, 0.5}, {-0.5, -0.5, -0.5}};
  const auto found = gradient_of(learner_config("grpo", DType::f64), batch);
  const auto expected = expected_gradient(batch, advantage);
  CHECK(largest_difference(found, expected) <= 1e-10 * largest(expected));
  std::vector<Trajectory> untold = batch;
  for (Trajectory& sample : untold) sample.turns.clear();
  CHECK(gradient_of(learner_config("grpo", DType::f64), untold) == found);
  // Where turns are compared, a reward at the end is earned from every turn on.
  CHECK(largest_difference(gradient_of(by_turn(), batch), expected) <= 1e-10 * largest(expected));

  // KL and entropy are means over the three tokens of each, and no others.
  for (Trajectory& sample : batch) sample.reward = sample.turns.back().reward = 0.0;
  LearnerConfig config = learner_config("grpo", DType::f64);
  config.kl = "k2";
  config.kl_coefficient = 0.7;
  config.kl_ratio_cap = 0.0;
  config.entropy_coefficient = 0.3;
  Parameters parameters = masters(tiny_model(), DType::f64);
  const auto other = std::make_shared<const Parameters>(Parameters::initialize(tiny_model(), 77, DType::f64));
  Learner learner(tiny_model(), parameters, config);
  learner.set_reference(other);
  learner.gradient(batch);
  Parameters again = masters(tiny_model(), DType::f64);
  again.set_requires_grad(true);
  const DenseTrainer trainer(tiny_model(), plain_profile(DType::f64));
  const auto dense = trainer.tokens(again, batch, {1.0, 1.0}), held = trainer.tokens(*other, batch, {1.0, 1.0});
  const auto slopes = reference::logit_gradients(dense, [&](const reference::Terms& terms) {
    reference::Scalar loss;
    for (size_t s = 0; s < terms.size(); ++s) {
      REQUIRE(terms[s].size() == 3);
      for (size_t t = 0; t < terms[s].size(); ++t) {
        const reference::Scalar x = terms[s][t].log_py() - reference::log_softmax(held[s][t].z)[held[s][t].drawn];
        loss = loss + x * x * (0.5 * 0.7 / 6.0);
        for (const reference::Scalar& log_p : terms[s][t].log_p) loss = loss + exp(log_p) * log_p * (0.3 / 6.0);
      }
    }
    return loss;
  });
  trainer.propagate(again, batch, slopes, {1.0, 1.0});
  CHECK(largest(gradients(again)) > 1e-3);
  CHECK(largest_difference(gradients(parameters), gradients(again)) <= 1e-10 * largest(gradients(again)));
}

TEST_CASE("one turn, told or not, is the episode, bit for bit") {
  std::vector<Trajectory> batch = four_episodes("top_k");
  const auto plain = gradient_of(learner_config("sc+mis"), batch);
  CHECK(gradient_of(by_turn("sc+mis", DType::f32), batch) == plain);
  for (Trajectory& sample : batch) sample.turns = {sample.as_one_turn()};
  CHECK(gradient_of(learner_config("sc+mis"), batch) == plain);
  CHECK(gradient_of(by_turn("sc+mis", DType::f32), batch) == plain);
}

TEST_CASE("no split into micro-batches changes a bit where turns are compared") {
  const auto correction = GENERATE(as<std::string>{}, "sc+mis", "m2po", "gspo");
  const auto type = GENERATE(DType::f64, DType::bf16);
  CAPTURE(correction);
  const std::vector<Trajectory> batch = two_groups("top_k");
  LearnerConfig config = by_turn(correction, type);
  config.kl = "k1";
  config.kl_coefficient = 0.1;
  config.overlong = "penalty";
  config.max_tokens = 4;
  config.overlong_tokens = 3;
  config.epochs = 2;
  const auto ref = std::make_shared<const Parameters>(
      Parameters::initialize(tiny_model(), 77, type == DType::f64 ? DType::f64 : DType::f32));
  std::map<std::string, uint64_t> whole;
  for (const int64_t tokens : {1000, 24, 1}) {
    config.micro_batch_tokens = tokens;
    Parameters parameters = masters(tiny_model(), type);
    Learner learner(tiny_model(), parameters, config);
    learner.set_reference(ref);
    learner.step(batch);
    if (tokens == 1000) whole = parameters.fingerprints();
    CHECK(parameters.fingerprints() == whole);
  }
  Parameters untrained = masters(tiny_model(), type);
  CHECK(untrained.fingerprints() != whole);
}

TEST_CASE("a penalty and a KL in the reward count in the turn whose tokens they are for") {
  std::vector<Trajectory> batch = two_groups();
  LearnerConfig config = by_turn();
  config.overlong = "penalty";
  config.max_tokens = 4;
  config.overlong_tokens = 2;
  Parameters parameters = masters(tiny_model(), DType::f64);
  Learner learner(tiny_model(), parameters, config);
  const Metrics metrics = learner.gradient(batch);
  const auto found = gradients(parameters);
  CHECK(metrics.at("overlong/penalty") == (-1.0 - 1.0 - 0.5 - 1.0 - 0.5) / 5.0);  // replies of 5, 5, 3, 4, 3
  config.overlong = "keep";
  auto shaped = batch;
  const std::vector<std::vector<double>> penalty{{0, -1}, {0, -1}, {-0.5}, {0, -1}, {0, 0, -0.5}};
  for (size_t i = 0; i < batch.size(); ++i)
    for (size_t k = 0; k < penalty[i].size(); ++k)
      shaped[i].turns[k].reward += penalty[i][k], shaped[i].reward += penalty[i][k];
  CHECK(gradient_of(config, shaped) == found);

  config.kl = "k1";
  config.kl_coefficient = 0.3;
  const auto ref = std::make_shared<const Parameters>(Parameters::initialize(tiny_model(), 77, DType::f64));
  Parameters trained = masters(tiny_model(), DType::f64);
  Learner held(tiny_model(), trained, config);
  held.set_reference(ref);
  held.gradient(batch);
  const DenseTrainer trainer(tiny_model(), plain_profile(DType::f64));
  const std::vector<double> ones(batch.size(), 1.0);
  const auto p = trainer.tokens(trained, batch, ones), r = trainer.tokens(*ref, batch, ones);
  shaped = batch;
  for (size_t i = 0; i < batch.size(); ++i) {
    for (size_t k = 0, t = 0; k < batch[i].turns.size(); ++k) {
      for (const size_t end = t + batch[i].turns[k].tokens; t < end; ++t) {
        const size_t drawn = p[i][t].drawn;
        const double x = reference::log_softmax(p[i][t].z)[drawn] - reference::log_softmax(r[i][t].z)[drawn];
        shaped[i].turns[k].reward -= 0.3 * x, shaped[i].reward -= 0.3 * x;
      }
    }
  }
  config.kl = "none";
  const auto expected = gradient_of(config, shaped);
  CHECK(largest_difference(gradients(trained), expected) <= 1e-9 * largest(expected));
  CHECK(largest_difference(gradients(trained), gradient_of(config, batch)) > 1e-3 * largest(expected));
}

TEST_CASE("turns that do not fit their episode are refused, sample by sample") {
  const int64_t vocabulary = tiny_model().vocabulary;
  const auto wrong = [&](auto change) {
    std::vector<Trajectory> batch = two_groups();
    change(batch[0].turns);
    std::string text = batch[0].inconsistency(vocabulary);
    CHECK(select_samples(batch, vocabulary, 32).failed == (text.empty() ? 0 : 1));
    return text;
  };
  CHECK_THAT(wrong([](auto& turns) { turns[0].tokens = 3; }), Contains("add up to the loss tokens"));
  CHECK_THAT(wrong([](auto& turns) { turns[0].tokens = UINT32_MAX; }), Contains("add up to the loss tokens"));
  CHECK_THAT(wrong([](auto& turns) { turns.pop_back(); }), Contains("add up to the loss tokens"));
  CHECK_THAT(wrong([](auto& turns) { turns[1].reward = 0.6; }), Contains("add up to the episode's"));
  CHECK_THAT(wrong([](auto& turns) { turns[1].reward = std::nan(""); }), Contains("not a finite number"));
  CHECK_THAT(wrong([](auto& turns) { turns[0].reward = HUGE_VAL; }), Contains("not a finite number"));
  CHECK(wrong([](auto& turns) { turns[1].reward += 1e-16; }).empty());  // thirds do not add up exactly
  CHECK(wrong([](auto& turns) { turns.clear(); }).empty());
}

TEST_CASE("a group is dead by turns if no turn earned more than its like") {
  kernels::RandomStream random({33, kernels::Purpose::data, 0, 0});
  const auto dead = [&](const std::vector<std::vector<Turn>>& group, bool turns) {
    std::vector<Trajectory> samples;
    std::vector<const Trajectory*> pointers;
    for (const auto& one : group) samples.push_back(episode(random, one, 1));
    for (const Trajectory& sample : samples) pointers.push_back(&sample);
    return equal_rewards(pointers, turns);
  };
  const std::vector<Turn> early{{1, 1.0}, {1, 0.0}}, late{{1, 0.0}, {1, 1.0}}, shorter{{2, 1.0}};
  CHECK(dead({early, late}, false));
  CHECK(!dead({early, late}, true));  // the second turns differ
  CHECK(dead({early, early}, true));
  CHECK(dead({early, shorter}, true));  // nothing is left to be earned after the first
  CHECK(dead({shorter, shorter}, true));
  CHECK(!dead({shorter, {{2, 0.0}}}, true));
  CHECK(dead({early}, true));
}

TEST_CASE("advantages that do not compare returns are refused where turns are") {
  for (const std::string name : {"reinforce", "maxrl"}) {
    LearnerConfig config = by_turn();
    config.advantage = name;
    Parameters parameters = masters(tiny_model());
    CHECK_THROWS_WITH(Learner(tiny_model(), parameters, config), Contains(name) && Contains("does not compare turns"));
  }
  LearnerConfig config = by_turn();
  config.advantage_level = "turns";
  Parameters parameters = masters(tiny_model());
  CHECK_THROWS_WITH(Learner(tiny_model(), parameters, config), Contains("nearest: \"turn\""));
}

}  // namespace
}  // namespace motley::algos
