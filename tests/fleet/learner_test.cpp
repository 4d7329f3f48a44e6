// A run whose optimizer steps another process computes, which is killed, and another that leaves.
#include <catch2/catch.hpp>

#include "tests/fleet/accounts.h"
#include "tests/fleet/fleet_run.h"

namespace motley::fleet {
namespace {

constexpr Seconds kSoon{30};

std::unique_ptr<Program> start_learner(const TemporaryFolder& folder, const std::string& name, const std::string& at) {
  return std::make_unique<Program>(folder, name, motley({"learner", "--join", at, "--threads", "1"}));
}

}  // namespace

TEST_CASE("learners are killed, leave and join: the run loses nothing, and ends them", "[network]") {
  const TemporaryFolder folder;
  folder.write("x.toml", small_experiment(1));
  Program run(folder, "run",
              motley({"run", "x.toml", "--listen", "127.0.0.1:0", "--set", "run.learner=joins", "--set",
                      "run.checkpoint_every=1000"}));
  const std::string before = "a learner joins with: motley learner --join ";
  run.wait_for_log(before, kSoon);
  const std::string log = run.log();
  const size_t at = log.find(before) + before.size();
  const std::string address = log.substr(at, log.find('\n', at) - at);

  const auto killed = start_learner(folder, "killed", address);
  wait_for_updates(run, 4, kSoon);
  killed->signal(SIGKILL);
  CHECK(killed->wait(kSoon) == 128 + SIGKILL);
  run.wait_for_log(" waits for one", kSoon);
  const auto leaves = start_learner(folder, "leaves", address);
  wait_for_updates(run, 4, kSoon);
  const auto second = start_learner(folder, "second", address);
  CHECK(second->wait(kSoon) == 2);
  CHECK(occurrences(second->log(), "the run refuses this learner: this run has a learner") == 1);
  CHECK(interrupt(*leaves, kSoon) == 0);
  run.wait_for_log(") left; ", kSoon);
  const auto last = start_learner(folder, "last", address);
  wait_for_updates(run, 4, kSoon);
  CHECK(interrupt(run, kSoon) == 0);
  CHECK(interrupt(*last, kSoon) == 0);

  const std::string whole = run.log();
  CAPTURE(whole);
  CHECK(occurrences(whole, "learner (") == 5);  // three come, one is lost, one leaves
  CHECK(occurrences(whole, " was lost") == 1);
  CHECK(occurrences(whole, "differ from those published") == 0);
  const Accounts accounts = take_accounts(folder / "runs/small-0", kGroupSize);
  for (const std::string& fault : accounts.faults) FAIL_CHECK(fault);
  CHECK(accounts.updates >= 12);
  CHECK(accounts.samples == accounts.updates * 32);
  CHECK(accounts.failed == 0);
}

}  // namespace motley::fleet
