#include "actors/policy/batching.h"

#include <catch2/catch.hpp>

#include "actors/policy/keep.h"
#include "actors/policy/prompt_ledger.h"

namespace motley::actors {
namespace {

TrajectoryPtr sample(uint64_t group, uint32_t number, std::vector<uint64_t> versions = {0}) {
  auto trajectory = std::make_shared<algos::Trajectory>();
  trajectory->group = group;
  trajectory->sample = number;
  for (const uint64_t version : versions) {
    trajectory->records.tokens.push_back(1);
    trajectory->records.log_q.push_back(-1.0f);
    trajectory->records.versions.push_back(version);
    trajectory->records.offsets.push_back(0);
    trajectory->records.log_tail.push_back(0.0f);
  }
  return trajectory;
}

std::vector<uint64_t> ids(const std::vector<TrajectoryGroup>& groups) {
  std::vector<uint64_t> result;
  for (const TrajectoryGroup& group : groups) result.push_back(group.id);
  return result;
}

TEST_CASE("a group is complete when its last sample is there; samples stand in their order") {
  GroupCollector collector(3, false);
  for (const uint32_t number : {2u, 0u}) collector.add(sample(7, number));
  CHECK(collector.complete() == 0);
  collector.add(sample(7, 1));
  REQUIRE(collector.complete() == 1);
  const auto groups = collector.take(1);
  for (uint32_t i = 0; i < 3; ++i) CHECK(groups[0].samples[i]->sample == i);
  CHECK(collector.complete() == 0);
}

TEST_CASE("batches come in order of completion, or of prompts") {
  for (const bool by_prompt : {false, true}) {
    GroupCollector collector(1, by_prompt);
    for (const uint64_t group : {9, 2, 5}) collector.add(sample(group, 0));
    CHECK(ids(collector.take(2)) == (by_prompt ? std::vector<uint64_t>{2, 5} : std::vector<uint64_t>{9, 2}));
    CHECK(collector.complete() == 1);
  }
}

TEST_CASE("a sample that comes twice or is out of range is refused") {
  GroupCollector collector(2, false);
  collector.add(sample(1, 0));
  CHECK_THROWS_AS(collector.add(sample(1, 0)), std::logic_error);
  CHECK_THROWS_AS(collector.add(sample(1, 2)), std::logic_error);
}

TEST_CASE("a group is as old as its oldest token, and is dropped whole") {
  GroupCollector collector(2, false);
  collector.add(sample(1, 0, {9}));
  collector.add(sample(1, 1, {9, 7}));  // two versions behind 9
  collector.add(sample(2, 0, {8}));
  collector.add(sample(2, 1, {9}));
  CHECK(ids(collector.drop_stale(9, 2)).empty());
  const auto dropped = collector.drop_stale(9, 1);
  CHECK(ids(dropped) == std::vector<uint64_t>{1});
  CHECK(dropped[0].samples.size() == 2);
  CHECK(collector.complete() == 1);
  CHECK(collector.drop_stale(8, 0).empty());
}

TEST_CASE("failed and empty samples have no age") {
  GroupCollector collector(2, false);
  TrajectoryPtr failed = sample(1, 0, {0});
  failed->failure = "lost";
  collector.add(failed);
  collector.add(sample(1, 1, {}));
  CHECK(collector.drop_stale(100, 0).empty());
  CHECK(oldest_version(collector.take(1)[0]) == std::nullopt);
}

TEST_CASE("more than half is too many") {
  CHECK_FALSE(too_many_dropped(256, 256));
  CHECK(too_many_dropped(257, 256));
}

TEST_CASE("the ledger gives every prompt once, whatever the order") {
  PromptLedger ledger;
  for (const uint64_t prompt : {0, 3, 1}) ledger.consume(prompt);
  CHECK(ledger.next() == 4);
  CHECK(ledger.unfinished() == std::vector<uint64_t>{2});
  CHECK_THROWS_AS(ledger.consume(3), std::logic_error);
  PromptLedger resumed(ledger.next(), ledger.unfinished());
  resumed.consume(2);
  resumed.consume(6);
  CHECK(resumed.next() == 7);
  CHECK(resumed.unfinished() == std::vector<uint64_t>{4, 5});
}

TEST_CASE("lists of numbers as text") {
  const std::vector<uint64_t> numbers{0, 18446744073709551615ull, 7};
  CHECK(numbers_from_text(numbers_to_text(numbers)) == numbers);
  CHECK(numbers_to_text({}).empty());
  CHECK(numbers_from_text("").empty());
  for (const char* wrong : {",", "1,", "1,,2", "x", "-1", "1 2", "18446744073709551616"})
    CHECK_THROWS_AS(numbers_from_text(wrong), std::invalid_argument);
}

TEST_CASE("values of run.keep_trajectories") {
  CHECK(kept_updates("all") == std::numeric_limits<int64_t>::max());
  CHECK(kept_updates("none") == 0);
  CHECK(kept_updates("last 10") == 10);
  for (const char* wrong : {"", "last", "last 0", "last -1", "last 1x", "some"}) CHECK_FALSE(kept_updates(wrong));
}

}  // namespace
}  // namespace motley::actors
