#include "actors/simulation/simulation.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "actors/simulation/draw.h"

namespace motley::simulation {
namespace {

GroupPlan sampler_group(std::string name, int64_t replicas, double tokens_per_second, double price = 0.0) {
  GroupPlan group;
  group.name = std::move(name);
  group.replicas = replicas;
  group.max_sequences = 8;
  group.tokens_per_second = tokens_per_second;
  group.price_per_hour = price;
  return group;
}

/// Replies of exactly 100 tokens at 10 tokens/s per sequence: ten seconds each.
FleetPlan steady() {
  FleetPlan plan;
  plan.run.updates = 20;
  plan.run.warmup_updates = 4;
  plan.run.concurrency = 64;
  plan.learner.prompts = 4;
  plan.learner.group_size = 4;
  plan.episodes.reply = {100.0, 0.0};
  plan.samplers = {sampler_group("a", 2, 80.0, 3.6)};
  return plan;
}

}  // namespace

TEST_CASE("fixed lengths: rates, idle share, staleness and cost by hand") {
  FleetPlan plan = steady();
  // 16 slots, 64 episodes: every slot always has work. 16 replies end every ten seconds, which is one update.
  const Result full = simulate(plan);
  CHECK(full.updates == 20);
  CHECK(full.update_seconds == Approx(10.0));
  CHECK(full.tokens_per_second == Approx(160.0));
  CHECK(full.samples == 20 * 16);
  CHECK(full.hunger == Approx(1.0));  // training takes no time
  CHECK(full.groups[0].idle_share == Approx(0.0).margin(1e-9));
  CHECK(full.groups[0].unused_share == Approx(0.0).margin(1e-9));
  CHECK(full.cost_per_hour == Approx(7.2));
  CHECK(full.cost_per_update == Approx(0.02));
  CHECK(full.cost_per_million_tokens == Approx(12.5));
  // A learner that takes 40 s per update is the limit: for 30 s of them nothing can be drawn for want of credits.
  plan.learner.train_seconds = 40.0;
  const Result slow = simulate(plan);
  CHECK(slow.update_seconds == Approx(40.0));
  CHECK(slow.hunger == Approx(0.0).margin(1e-9));
  CHECK(slow.groups[0].idle_share == Approx(0.75));
  CHECK(slow.cost_per_update == Approx(0.08));
  // 64 episodes are four batches, which are taken one after another.
  CHECK(mean(slow.staleness) == Approx(4.0));
  CHECK(slow.token_staleness == Approx(4.0));
}

TEST_CASE("groups get episodes in proportion to their capacity") {
  FleetPlan plan = steady();
  plan.samplers = {sampler_group("a", 1, 80.0), sampler_group("b", 3, 80.0), sampler_group("c", 2, 160.0)};
  plan.samplers[2].max_sequences = 16;
  plan.run.updates = 100;
  const Result result = simulate(plan);
  CHECK(result.groups[0].share == Approx(0.125).margin(0.01));
  CHECK(result.groups[1].share == Approx(0.375).margin(0.01));
  CHECK(result.groups[2].share == Approx(0.5).margin(0.01));
}

TEST_CASE("the same seed gives the same result, another one another") {
  FleetPlan plan = steady();
  plan.episodes.reply.spread = 1.0;
  plan.episodes.turns = {3.0, 0.5};
  plan.episodes.turn_seconds = 2.0;
  plan.samplers.push_back(sampler_group("b", 3, 50.0));
  plan.samplers[1].failures_per_hour = 20.0;
  plan.samplers[1].start_seconds = 30.0;
  const Result first = simulate(plan), again = simulate(plan);
  CHECK(first.seconds == again.seconds);
  CHECK(first.staleness == again.staleness);
  CHECK(first.events == again.events);
  CHECK(first.groups[1].failures > 0);
  plan.seed = 1;
  CHECK(simulate(plan).seconds != first.seconds);
}

TEST_CASE("failing replicas: every episode is trained on or counted as failed, none twice") {
  FleetPlan plan = steady();
  plan.samplers[0].failures_per_hour = 120.0;  // every 30 s: of 20-second replies many lose two
  plan.samplers[0].start_seconds = 5.0;
  plan.episodes.reply.mean = 200.0;
  const Result result = simulate(plan);
  CHECK(result.stopped.empty());
  CHECK(result.failed > 0);
  CHECK(result.samples + result.failed == 20 * 16);  // Collector throws for one that comes twice
  CHECK(result.groups[0].failures > 0);
}

TEST_CASE("samples that are too old are dropped; when most are, the run stops as a real one would") {
  FleetPlan plan = steady();
  plan.learner.train_seconds = 40.0;
  plan.run.max_staleness = 4;
  CHECK(simulate(plan).dropped == 0);
  plan.run.max_staleness = 1;
  const Result result = simulate(plan);
  CHECK(result.stopped.find("max_staleness") != std::string::npos);
}

TEST_CASE("an autoscaled fleet feeds the learner for less than a fixed one that is too large") {
  FleetPlan plan = steady();
  plan.run.updates = 150;
  plan.run.warmup_updates = 100;
  plan.run.concurrency = 256;
  plan.learner.train_seconds = 5.0;  // which takes four replicas
  plan.episodes.reply.spread = 0.5;
  plan.samplers = {sampler_group("dear", 12, 80.0, 9.0), sampler_group("cheap", 0, 80.0, 3.0)};
  const Result fixed = simulate(plan);
  plan.autoscaler.enabled = true;
  plan.autoscaler.every_seconds = 5.0;
  plan.samplers[0].minimum = 0;
  plan.samplers[0].maximum = 12;
  plan.samplers[0].replicas = 1;
  plan.samplers[1].maximum = 2;
  plan.samplers[0].start_seconds = plan.samplers[1].start_seconds = 20.0;
  const Result scaled = simulate(plan);
  CHECK(scaled.groups[1].replicas == Approx(2.0));  // the cheap ones first
  CHECK(scaled.update_seconds < 1.2 * fixed.update_seconds);
  CHECK(scaled.cost_per_update < 0.5 * fixed.cost_per_update);
  CHECK(scaled.groups[0].starts + scaled.groups[0].stops <= 2);  // it has settled
  plan.autoscaler.budget_per_hour = 8.0;
  CHECK(simulate(plan).cost_per_hour <= 8.0);
}

TEST_CASE("a fleet of nothing that may not grow stops and says so") {
  FleetPlan plan = steady();
  plan.samplers[0].replicas = 0;
  plan.samplers[0].maximum = 4;
  plan.autoscaler.enabled = true;
  plan.autoscaler.budget_per_hour = 1.0;
  CHECK(simulate(plan).stopped.find("nothing more can happen") != std::string::npos);
  plan.autoscaler.budget_per_hour = 100.0;
  CHECK(simulate(plan).stopped.empty());
}

TEST_CASE("the homogeneous fleet has the same capacity, and serves the same episodes") {
  FleetPlan plan = steady();
  plan.samplers = {sampler_group("a", 2, 80.0, 2.0), sampler_group("b", 4, 40.0, 2.0)};
  const FleetPlan alone = homogeneous(plan, "b");
  REQUIRE(alone.samplers.size() == 1);
  CHECK(alone.samplers[0].replicas == 8);
  CHECK(simulate(alone).samples == simulate(plan).samples);
  plan.compare.replicas = 3;
  CHECK(homogeneous(plan, "a").samplers[0].replicas == 3);
  CHECK_THROWS_AS(homogeneous(plan, "c"), std::out_of_range);
}

TEST_CASE("drawn lengths have the mean and the spread that were asked for") {
  kernels::RandomStream random = stream(1, Draw::reply, 0);
  double sum = 0.0, squares = 0.0;
  constexpr int kCount = 20000;
  for (int i = 0; i < kCount; ++i) {
    const auto value = static_cast<double>(draw({1000.0, 0.5}, random));
    sum += value;
    squares += value * value;
  }
  const double average = sum / kCount;
  CHECK(average == Approx(1000.0).epsilon(0.02));  // five standard errors
  CHECK(std::sqrt(squares / kCount - average * average) == Approx(500.0).epsilon(0.06));
  CHECK(draw({0.2, 0.0}, random) == 1);
  EpisodePlan episodes;
  episodes.replies = {3, 9};
  episodes.max_tokens = 5;
  for (int i = 0; i < 20; ++i) {
    const int64_t tokens = draw_reply(episodes, random);
    CHECK((tokens == 3 || tokens == 5));
  }
}

TEST_CASE("quantiles of a histogram") {
  CHECK(quantile({}, 0.5) == 0);
  CHECK(quantile({{2, 1}}, 0.01) == 2);
  CHECK(quantile({{0, 50}, {3, 40}, {7, 10}}, 0.5) == 0);
  CHECK(quantile({{0, 50}, {3, 40}, {7, 10}}, 0.9) == 3);
  CHECK(quantile({{0, 50}, {3, 40}, {7, 10}}, 1.0) == 7);
  CHECK(mean({{0, 1}, {4, 3}}) == 3.0);
}

}  // namespace motley::simulation
