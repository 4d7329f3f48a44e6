#include "actors/policy/autoscaling.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <vector>

#include "kernels/philox.h"

namespace motley::actors {
namespace {

constexpr double kStep = 10.0, kUpdate = 100.0;  // seconds between decisions, and of an update

/// A fleet that is obeyed, a learner that could take `demand` tokens per second, and updates of a fixed length: the
/// autoscaler's loop closed, in seconds.
struct Loop {
  std::vector<ScalingGroup> groups;
  Autoscaler autoscaler;
  double now = 0.0, update_began = 0.0;
  FleetLoad load{};
  std::vector<std::pair<double, size_t>> starts{};  // when it serves, and in which group
  std::vector<int64_t> totals{};                    // replicas after every decision

  Loop(std::vector<ScalingGroup> of, const AutoscalerOptions& options = {})
      : groups(std::move(of)), autoscaler(options) {}

  int64_t replicas() const {
    int64_t sum = 0;
    for (const ScalingGroup& group : groups) sum += group.serving + group.starting;
    return sum;
  }
  double cost() const {
    double sum = 0;
    for (const ScalingGroup& group : groups)
      sum += group.price_per_hour * static_cast<double>(group.serving + group.starting + group.leaving);
    return sum;
  }
  void step(double demand) {
    now += kStep;
    std::erase_if(starts, [&](const auto& start) {
      if (start.first > now) return false;
      --groups[start.second].starting;
      ++groups[start.second].serving;
      return true;
    });
    double capacity = 0;
    for (const ScalingGroup& group : groups) capacity += group.capacity * static_cast<double>(group.serving);
    if (now >= update_began + kUpdate) {
      load.since = update_began;
      update_began = now;
      load.used = std::min(capacity, demand);
      load.hunger = demand > 0 ? 1.0 - load.used / demand : 0.0;
    }
    obey(autoscaler.decide(now, groups, load));
  }
  void obey(const ScalingDecision& change) {
    for (size_t g = 0; g < groups.size(); ++g) {
      ScalingGroup& group = groups[g];
      for (int64_t i = 0; i < change[g]; ++i) starts.emplace_back(now + group.start_seconds, g);
      group.starting += std::max<int64_t>(0, change[g]);
      group.serving -= std::max<int64_t>(0, -change[g]);
      REQUIRE(group.serving >= 0);
      REQUIRE(group.serving + group.starting <= group.maximum);
    }
    totals.push_back(replicas());
  }
  void run(double seconds, double demand) {
    for (double end = now + seconds; now < end;) step(demand);
  }
  /// How often the number of replicas went up after it had gone down, or the other way round.
  int turns() const {
    int count = 0;
    int64_t direction = 0;
    for (size_t i = 1; i < totals.size(); ++i) {
      const int64_t change = totals[i] - totals[i - 1];
      if (change == 0) continue;
      count += direction != 0 && (change > 0) != (direction > 0);
      direction = change;
    }
    return count;
  }
};

ScalingGroup group(double price, double capacity, int64_t maximum, int64_t serving = 0) {
  return {.maximum = maximum, .price_per_hour = price, .start_seconds = 60, .capacity = capacity, .serving = serving};
}

}  // namespace

TEST_CASE("a step of load: the fleet grows until the learner does not wait, and shrinks after it, without flapping") {
  Loop loop({group(4, 100, 40, 4)});
  loop.run(2000, 350);  // 12.5 % idle
  CHECK(loop.replicas() == 4);
  loop.run(4000, 2000);
  CHECK(loop.replicas() >= 18);  // a hunger of 10 % is tolerated
  CHECK(loop.replicas() <= 20);
  CHECK(loop.turns() == 0);
  const int64_t high = loop.replicas();
  loop.run(4000, 350);
  CHECK(loop.replicas() == 5);  // 350 / (1 - 20 %)
  CHECK(loop.turns() == 1);
  CHECK(*std::max_element(loop.totals.begin(), loop.totals.end()) == high);
  loop.run(4000, 350);
  CHECK(loop.replicas() == 5);
}

TEST_CASE("bursts that are shorter than the patience change nothing, loads between the thresholds neither") {
  Loop loop({group(4, 100, 40, 10)}, {.grow_after = 150, .shrink_after = 300});
  for (int i = 0; i < 20; ++i) {
    loop.run(100, 3000);  // one update
    loop.run(200, 800);
  }
  for (const int64_t replicas : loop.totals) CHECK(replicas == 10);
  for (int i = 0; i < 40; ++i) loop.run(200, 660 + 15 * i);  // 34 % idle to a hunger of 20 %
  CHECK(loop.totals.front() == 10);
  CHECK(loop.turns() == 0);
}

TEST_CASE("growth waits for what it started, and for a load that was seen after it") {
  Loop loop({group(4, 100, 1000, 2)});
  loop.groups[0].start_seconds = 600;
  loop.run(400, 10000);
  CHECK(loop.replicas() == 4);  // twice, growth_limit
  loop.run(500, 10000);
  CHECK(loop.replicas() == 4);
  loop.run(400, 10000);
  CHECK(loop.replicas() == 8);
}

TEST_CASE("a hungry learner with an idle fleet does not grow it; a queue alone does not either") {
  Autoscaler autoscaler({.grow_after = 0});
  const std::vector<ScalingGroup> groups{group(4, 100, 40, 4)};
  const auto decide = [&](double now, FleetLoad load) {
    load.since = now;
    return autoscaler.decide(now, groups, load);
  };
  CHECK(decide(1, {.used = 250, .hunger = 0.5}) == ScalingDecision{0});
  CHECK(decide(2, {.used = 400, .queued = 100}) == ScalingDecision{0});
  CHECK(decide(3, {.used = 250, .hunger = 0.5, .queued = 1}) == ScalingDecision{4});
}

TEST_CASE("cheapest useful capacity first") {
  // Per token the large replica is the cheapest, for a little the small one is.
  const std::vector<ScalingGroup> groups{group(6, 100, 40), group(1, 10, 40), group(4.9, 50, 40)};
  const auto grown = [&](double wanted, double budget = 1e9) {
    ScalingDecision change(3, 0);
    grow(groups, 0.0, wanted, budget, change);
    return change;
  };
  CHECK(grown(8) == ScalingDecision{0, 1, 0});
  CHECK(grown(100) == ScalingDecision{1, 0, 0});
  CHECK(grown(310) == ScalingDecision{3, 1, 0});
  CHECK(grown(310, 13) == ScalingDecision{2, 1, 0});
  std::vector<ScalingGroup> limited = groups;
  limited[0].maximum = 1;
  ScalingDecision change(3, 0);
  grow(limited, 0.0, 160, 1e9, change);
  CHECK(change == ScalingDecision{1, 1, 1});
  limited[0].available = false;
  change.assign(3, 0);
  grow(limited, 0.0, 60, 1e9, change);
  CHECK(change == ScalingDecision{0, 1, 1});
}

TEST_CASE("the dearest per token goes first, down to what is needed and to the minimum") {
  std::vector<ScalingGroup> groups{group(6, 100, 9, 3), group(9, 100, 9, 3), group(0, 100, 9, 3)};
  ScalingDecision change(3, 0);
  shrink(groups, 450, 0, change);
  CHECK(change == ScalingDecision{-1, -3, 0});
  groups[1].minimum = 2;
  change.assign(3, 0);
  shrink(groups, 450, 0, change);
  CHECK(change == ScalingDecision{-3, -1, 0});
}

TEST_CASE("a shrink leaves slots for the most sessions that were seen, however little they draw") {
  Autoscaler autoscaler({.shrink_after = 20});
  std::vector<ScalingGroup> groups{group(4, 100, 40, 10)};
  groups[0].slots = 8;
  CHECK(autoscaler.decide(0, groups, {.used = 50, .sessions = 60}) == ScalingDecision{0});  // three quarters
  CHECK(autoscaler.decide(10, groups, {.used = 50, .sessions = 20}) == ScalingDecision{0});
  CHECK(autoscaler.decide(20, groups, {.used = 50, .sessions = 40}) == ScalingDecision{0});
  CHECK(autoscaler.decide(30, groups, {.used = 50, .sessions = 4}) == ScalingDecision{-3});  // 40 of 56 slots
}

TEST_CASE("minimum, maximum and budget hold at once, before any patience") {
  Autoscaler autoscaler({.budget_per_hour = 20});
  std::vector<ScalingGroup> groups{group(4, 100, 9), group(1, 10, 3, 5)};
  groups[0].minimum = 2;
  CHECK(autoscaler.decide(0, groups, {}) == ScalingDecision{2, -2});
  groups[0].serving = 6;
  groups[1].serving = 2;
  CHECK(autoscaler.decide(1, groups, {}) == ScalingDecision{-1, -2});  // 26 per hour; per token the second is dearer
  groups[1].serving = 0;
  groups[0].leaving = 1;  // still paid
  CHECK(autoscaler.decide(2, groups, {}) == ScalingDecision{-2, 0});
}

TEST_CASE("a dead group costs nothing, and its budget goes to others; a fleet of nothing starts one replica") {
  Loop loop({group(2, 100, 10, 4), group(4, 100, 10)}, {.budget_per_hour = 20});
  loop.run(1000, 400);
  CHECK(loop.cost() == 8);
  loop.groups[0].serving = 0;
  loop.groups[0].available = false;
  loop.run(kStep, 400);
  CHECK(loop.replicas() == 1);
  loop.run(5000, 1000);
  CHECK(loop.groups[0].starting + loop.groups[0].serving == 0);
  CHECK(loop.groups[1].serving == 5);
  CHECK(loop.cost() == 20);
  loop.run(5000, 0);
  CHECK(loop.replicas() == 1);  // never to nothing
  CHECK(Autoscaler({}).decide(0, {}, {}).empty());
}

TEST_CASE("random loads, deaths and shortages: within budget, maxima and minima, and the same decisions again") {
  const auto trace = [](uint64_t seed) {
    kernels::RandomStream random({.seed = seed, .purpose = kernels::Purpose::data});
    Loop loop({group(6, 120, 8, 2), group(2, 30, 20, 2), group(0, 10, 3)},
              {.grow_after = 30, .shrink_after = 60, .budget_per_hour = 40});
    loop.groups[1].minimum = 2;
    for (int i = 0; i < 300; ++i) {
      ScalingGroup& victim = loop.groups[random.below(3)];
      if (random.below(4) == 0) victim.serving -= std::min<int64_t>(victim.serving, 1);
      victim.available = random.below(5) != 0;
      loop.load.queued = static_cast<int64_t>(random.below(3));
      loop.step(static_cast<double>(random.below(2000)));
      REQUIRE(loop.cost() <= 40);
      const ScalingGroup& kept = loop.groups[1];
      if (kept.available && loop.cost() + kept.price_per_hour <= 40) REQUIRE(kept.serving + kept.starting >= 2);
    }
    return loop.totals;
  };
  for (uint64_t seed = 0; seed < 20; ++seed) CHECK(trace(seed) == trace(seed));
}

}  // namespace motley::actors
