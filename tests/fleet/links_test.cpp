// Samplers behind bad links: what stalls, breaks or is slow ends in its time and harms nobody else.
#include <catch2/catch.hpp>
#include <iostream>

#include "tests/fleet/accounts.h"
#include "tests/fleet/fleet_run.h"

namespace motley::fleet {
namespace {

constexpr Seconds kSoon{30};
const std::string kThroughRelay = "127.0.0.1:" + std::to_string(Site::kPort);

}  // namespace

TEST_CASE("a peer that accepts and never answers, on each of the ports", "[network]") {
  if (!networks_available()) return;
  const Site site(5);
  site.folder().write("x.toml", small_experiment());
  const auto run = site.start_run("run", {"x.toml", "--set", "run.lost_after=3"});
  const auto direct = site.start_sampler("direct", 4, "b");
  std::vector<std::unique_ptr<BadNetwork>> relays;
  std::vector<std::unique_ptr<Program>> samplers;
  for (int port = 0; port < 4; ++port) {
    relays.push_back(site.start_relay("relay" + std::to_string(port), port));
    samplers.push_back(site.start_sampler("sampler" + std::to_string(port), port, "a", kThroughRelay));
  }
  run->wait_for_log(" joins", kSoon, 5);
  wait_for_updates(*run, 5, kSoon);
  for (int port = 0; port < 4; ++port) relays[static_cast<size_t>(port)]->command("stall port " + std::to_string(port));
  const auto start = Clock::now();
  wait_for_updates(*run, 5, kSoon);
  run->wait_for_log(" was lost", kSoon, 2);  // control and sessions; weights are waited for longer
  WARN("the run has missed two samplers after " << since(start).count() << " s");
  wait_for_updates(*run, 20, kSoon);
  for (const auto& relay : relays) relay->command("clear");
  run->wait_for_log(" joins", kSoon, 7);
  CHECK(interrupt(*run, kSoon) == 0);
  for (const auto& sampler : samplers) CHECK(interrupt(*sampler, kSoon) == 0);
  for (const std::string& fault : take_accounts(site.folder() / "runs/small-0", kGroupSize).faults) FAIL_CHECK(fault);
}

TEST_CASE("a thousand samples wait in a slow link, and a stop does not", "[network]") {
  if (!networks_available()) return;
  const Site site(1);
  site.folder().write("x.toml", small_experiment());
  const auto run = site.start_run("run", {"x.toml", "--set", "run.concurrency=1024", "--set",
                                          "samplers.a.max_sequences=1024", "--set", "run.lost_after=10"});
  const auto relay = site.start_relay("relay", 0);
  const auto sampler = site.start_sampler("sampler", 0, "a", kThroughRelay);
  wait_for_updates(*run, 3, kSoon);
  relay->command("rate 10000 up port 1");
  std::this_thread::sleep_for(Seconds(0.5));
  const auto start = Clock::now();
  CHECK(interrupt(*run, kSoon) == 0);
  const double took = since(start).count();
  WARN("the run had stopped, with a checkpoint, after " << took << " s");
  CHECK(took < 2);
  CHECK(interrupt(*sampler, kSoon) == 0);
}

TEST_CASE("a sampler that is killed while it fetches weights harms nobody, and may come back", "[network]") {
  if (!networks_available()) return;
  const Site site(2);
  site.folder().write("x.toml", small_experiment());
  const auto run = site.start_run("run", {"x.toml", "--set", "run.lost_after=3"});
  const auto steady = site.start_sampler("steady", 0, "a");
  wait_for_updates(*run, 5, kSoon);
  const auto relay = site.start_relay("relay", 1);
  relay->command("rate 20000 down port 2");
  auto victim = site.start_sampler("victim", 1, "c", kThroughRelay);
  victim->wait_for_log("joined", kSoon);
  std::this_thread::sleep_for(Seconds(0.3));
  CHECK(relay->command("count").find("links 4") == 0);
  victim->signal(SIGKILL);
  run->wait_for_log(" was lost", kSoon);
  CHECK(occurrences(run->log(), "sampler c/") == 2);  // it joins, it is lost
  wait_for_updates(*run, 5, kSoon);
  relay->command("clear");
  victim = site.start_sampler("again", 1, "c", kThroughRelay);
  run->wait_for_log(" joins", kSoon, 3);
  wait_for_updates(*run, 20, kSoon);
  CHECK(interrupt(*run, kSoon) == 0);
  const Accounts accounts = take_accounts(site.folder() / "runs/small-0", kGroupSize);
  for (const std::string& fault : accounts.faults) FAIL_CHECK(fault);
  CHECK(accounts.by_group.contains("c"));
}

}  // namespace motley::fleet
