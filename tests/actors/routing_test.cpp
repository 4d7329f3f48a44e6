#include "actors/policy/routing.h"

#include <catch2/catch.hpp>

#include "actors/policy/staleness.h"

namespace motley::actors {
namespace {

using Fixed = std::vector<std::optional<double>>;

TEST_CASE("shares: measured capacities are proportions, fixed shares stand") {
  const std::vector<double> capacity{300, 100, 0};
  CHECK(group_shares(Fixed{{}, {}, {}}, capacity) == std::vector<double>{0.75, 0.25, 0.0});
  CHECK(group_shares(Fixed{{}, 0.5, {}}, capacity) == std::vector<double>{0.5, 0.5, 0.0});
  // A fixed share of a group that cannot serve counts for nothing; shares that leave nothing are scaled.
  CHECK(group_shares(Fixed{{}, {}, 0.5}, capacity) == std::vector<double>{0.75, 0.25, 0.0});
  CHECK(group_shares(Fixed{3.0, 1.0, {}}, capacity) == std::vector<double>{0.75, 0.25, 0.0});
  CHECK(group_shares(Fixed{{}, {}, {}}, std::vector<double>{0, 0, 0}) == std::vector<double>{0, 0, 0});
}

TEST_CASE("asynchronous and lock-step choices keep the proportion within one percent over 1,000 sessions") {
  for (const std::vector<double>& shares :
       {std::vector<double>{0.5, 0.3, 0.2}, {1.0 / 3, 1.0 / 3, 1.0 / 3}, {0.01, 0.98, 0.01}, {1.0}, {0.0, 0.4, 0.6}}) {
    ProportionalChoice choice(shares.size());
    std::vector<int> in_turn(shares.size()), by_number(shares.size());
    for (uint64_t n = 0; n < 1000; ++n) {
      ++in_turn[choice.choose(shares)];
      ++by_number[choice_by_number(shares, 7000 + n)];
    }
    for (size_t g = 0; g < shares.size(); ++g) {
      CHECK(std::abs(in_turn[g] - 1000 * shares[g]) <= 10);
      CHECK(std::abs(by_number[g] - 1000 * shares[g]) <= 10);
      if (shares[g] == 0.0) CHECK(in_turn[g] + by_number[g] == 0);
    }
  }
}

TEST_CASE("a group that comes back is not owed the sessions that it missed") {
  ProportionalChoice choice(2);
  const std::vector<double> away{1.0, 0.0}, both{0.5, 0.5};
  for (int i = 0; i < 100; ++i) CHECK(choice.choose(away) == 0);
  int second = 0;
  for (int i = 0; i < 10; ++i) second += choice.choose(both) == 1;
  CHECK(second == 5);
}

TEST_CASE("the lock-step choice depends on the session's number alone") {
  const std::vector<double> shares{0.25, 0.75};
  std::vector<size_t> first, again;
  for (uint64_t n = 0; n < 50; ++n) first.push_back(choice_by_number(shares, n));
  for (uint64_t n = 50; n-- > 0;) again.insert(again.begin(), choice_by_number(shares, n));
  CHECK(first == again);
  CHECK(choice_by_number(shares, ~uint64_t{0}) < 2);
}

TEST_CASE("measured capacity is tokens per busy second, and forgets") {
  MeasuredCapacity capacity;
  CHECK(capacity.tokens_per_second() == 0.0);
  capacity.add(100, 0.5);
  CHECK(capacity.tokens_per_second() == Approx(200));
  for (int i = 0; i < 1000; ++i) capacity.add(5, 0.1);
  CHECK(capacity.tokens_per_second() == Approx(50).epsilon(0.01));
}

TEST_CASE("imposed versions: in range, never below 0, equal for every arm, different by group and update") {
  std::vector<int> seen(9, 0);
  for (uint64_t update = 1; update <= 900; ++update) {
    const uint64_t version = imposed_version(3, update, 1, {0, 8}, 1000);
    REQUIRE(version >= 992);
    REQUIRE(version <= 1000);
    ++seen[1000 - version];
    CHECK(version == imposed_version(3, update, 1, {0, 8}, 1000));
  }
  for (const int count : seen) CHECK(count > 60);  // 100 expected; 60 is four standard deviations below
  CHECK(imposed_version(3, 1, 0, {5, 5}, 2) == 0);
  int equal = 0;
  for (uint64_t update = 0; update < 90; ++update)
    equal += imposed_version(3, update, 0, {0, 8}, 100) == imposed_version(3, update, 1, {0, 8}, 100);
  CHECK(equal < 30);
}

}  // namespace
}  // namespace motley::actors
