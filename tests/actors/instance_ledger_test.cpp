// What an autoscaler knows of its instances, and when the learner's hunger is seen. Time is an argument.
#include "actors/policy/instance_ledger.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "actors/policy/learner_pace.h"

namespace motley::actors {
namespace {

const InstanceLedger::Limits kLimits{.join_seconds = 100, .drain_seconds = 30, .young_seconds = 60, .backoff = 10};

std::vector<int64_t> numbers(const std::vector<InstanceLedger::Due>& due) {
  std::vector<int64_t> all;
  for (const auto& each : due) all.push_back(each.number);
  return all;
}

void expect(const InstanceLedger& ledger, int64_t serving, int64_t starting, int64_t leaving) {
  const InstanceLedger::Counts counts = ledger.counts();
  CHECK(counts.serving == serving);
  CHECK(counts.starting == starting);
  CHECK(counts.leaving == leaving);
}

TEST_CASE("an instance is ordered, starts, serves, gives its sessions away and is stopped", "[provision]") {
  InstanceLedger ledger(kLimits);
  CHECK(ledger.order(0) == 1);
  CHECK(ledger.order(0) == 2);
  expect(ledger, 0, 2, 0);
  CHECK_FALSE(ledger.started(1, 1));
  ledger.see(5, {{1, 70}});
  expect(ledger, 1, 1, 0);
  CHECK(ledger.replica(1) == 70);
  REQUIRE(ledger.retire(1, 10));
  expect(ledger, 0, 1, 1);
  CHECK(ledger.due(39).empty());  // its sessions move
  SECTION("they have moved") { ledger.see(20, {}); }
  SECTION("they have had time") { CHECK(ledger.due(39).empty()); }
  CHECK(numbers(ledger.due(40)) == std::vector<int64_t>{1});
  CHECK(ledger.due(41).empty());  // it is being stopped
  CHECK(ledger.stopped(1, "").empty());
  expect(ledger, 0, 1, 0);
  ledger.adopt(1, 50);  // seen once more: it does not come back
  ledger.see(50, {{1, 70}});
  expect(ledger, 0, 1, 0);
  CHECK(ledger.order(51) == 3);
}

TEST_CASE("what is no longer wanted while it is being started is stopped as soon as it is", "[provision]") {
  InstanceLedger ledger(kLimits);
  ledger.order(0);
  CHECK_FALSE(ledger.retire(1, 1));
  expect(ledger, 0, 0, 1);
  CHECK(ledger.due(2).empty());
  CHECK(ledger.started(1, 3));
  CHECK(numbers(ledger.due(3)) == std::vector<int64_t>{1});
  // Or it fails, which nobody minds.
  ledger.order(4);
  ledger.retire(2, 4);
  CHECK(ledger.failed(2, 5, "no room").empty());
  CHECK(ledger.available(5));
}

TEST_CASE("failed starts are retried later and later, three times in a row, and then no more", "[provision]") {
  InstanceLedger ledger(kLimits);
  ledger.order(0);
  CHECK(ledger.failed(1, 0, "no room") == "no room (1 of 3): again in 10 s at the earliest");
  CHECK_FALSE(ledger.available(9.9));
  CHECK(ledger.available(10));
  ledger.order(10);
  ledger.started(2, 10);
  CHECK(ledger.failed(2, 11, "it died") == "it died (2 of 3): again in 20 s at the earliest");
  CHECK_FALSE(ledger.available(30));
  CHECK(ledger.available(31));
  ledger.order(31);
  ledger.started(3, 31);
  CHECK(ledger.due(130.9).empty());
  const auto due = ledger.due(131);  // it never came
  REQUIRE(due.size() == 1);
  CHECK(due[0].text == "it did not come within 100 s (3 of 3): no more of this group are started in this run");
  CHECK(ledger.given_up());
  CHECK_FALSE(ledger.available(1e9));
  CHECK(ledger.first_cause() == "no room");
}

TEST_CASE("one that has served for a minute makes earlier failures good; one that dies young is a failure",
          "[provision]") {
  InstanceLedger ledger(kLimits);
  ledger.failed(0, "a");
  ledger.failed(0, "b");
  ledger.order(100);
  ledger.started(1, 100);
  ledger.see(101, {{1, 7}});
  const bool proven = GENERATE(false, true);
  ledger.see(proven ? 161 : 160, {{1, 7}});
  ledger.see(170, {});  // its link is lost
  expect(ledger, 0, 1, 0);
  const std::string text = ledger.failed(1, 171, "killed");
  CHECK(text == (proven ? "killed" : "killed (3 of 3): no more of this group are started in this run"));
  CHECK(ledger.given_up() == !proven);
}

TEST_CASE("what is gone from a listing is missed, if it had time to stand in it", "[provision]") {
  InstanceLedger ledger(kLimits);
  for (int i = 0; i < 3; ++i) {
    ledger.order(0);
    ledger.started(i + 1, 0);
  }
  ledger.see(1, {{3, 9}});
  CHECK(ledger.missing(29, {}).empty());
  CHECK(ledger.missing(30, {2}) == std::vector<int64_t>{1});  // the third serves, whatever the listing says
}

TEST_CASE("what cannot be stopped is tried three times, and told once", "[provision]") {
  InstanceLedger ledger(kLimits);
  ledger.adopt(5, 0);
  ledger.retire(5, 0);
  for (int i = 0; i < 2; ++i) {
    CHECK(ledger.due(1).size() == 1);
    CHECK(ledger.stopped(5, "no route").empty());
  }
  CHECK(ledger.due(1).size() == 1);
  CHECK(ledger.stopped(5, "no route") == "it could not be stopped, and may still run and cost: no route");
  expect(ledger, 0, 0, 0);
}

TEST_CASE("the one to stop: not there yet, else with the fewest sessions, the newest of equals", "[provision]") {
  InstanceLedger ledger(kLimits);
  CHECK_FALSE(ledger.victim({}));
  for (int64_t i = 1; i <= 4; ++i) ledger.adopt(i, 0);
  ledger.see(1, {{1, 11}, {2, 12}, {3, 13}});
  const std::map<uint64_t, int64_t> sessions{{11, 3}, {12, 1}, {13, 1}};
  std::vector<int64_t> order;
  while (const auto victim = ledger.victim(sessions)) {
    order.push_back(*victim);
    ledger.retire(*victim, 2);
  }
  CHECK(order == std::vector<int64_t>{4, 3, 2, 1});
}

TEST_CASE("the learner's hunger is that of its last whole update, or of the wait that goes on", "[provision]") {
  LearnerPace pace;
  FleetLoad load;
  const auto at = [&](double now, double tokens) {
    pace.fill(now, tokens, load);
    return load.hunger;
  };
  pace.waits(0);
  CHECK(at(50, 0) == 0.0);  // nothing is known yet
  CHECK(std::isinf(load.used));
  pace.takes(100);
  pace.drawn(1000);
  pace.waits(106);
  CHECK(at(110, 2000) == 0.0);
  pace.takes(110);  // an update of 10 s, of which it waited 4
  pace.drawn(2000);
  CHECK(at(112, 2600) == Approx(0.4));
  CHECK(load.since == 100.0);
  CHECK(load.used == Approx(1600.0 / 12.0));
  pace.waits(116);
  CHECK(at(117, 2600) == Approx(0.4));
  CHECK(at(140, 2600) == Approx(0.8));  // 24 s of waiting beside 6 of work
  pace.takes(140);
  CHECK(at(140, 2600) == Approx(0.8));
}

}  // namespace
}  // namespace motley::actors
