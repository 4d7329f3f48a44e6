// Samplers that vanish in every way, and a run that loses nothing by it.
#include <catch2/catch.hpp>

#include "tests/fleet/accounts.h"
#include "tests/fleet/fleet_run.h"

namespace motley::fleet {
namespace {

constexpr Seconds kSoon{30};  // for what takes a moment, on a machine that is busy with other things

std::string all(const std::vector<std::string>& texts) {
  std::string text;
  for (const std::string& each : texts) text += each + "\n";
  return text;
}

}  // namespace

TEST_CASE("three samplers on three machines: one is killed, one is unplugged, one is stopped, one joins late",
          "[network]") {
  if (!networks_available()) return;
  const Site site(4);
  site.folder().write("x.toml", small_experiment());
  const auto run = site.start_run("run", {"x.toml", "--set", "run.lost_after=3"});
  std::vector<std::unique_ptr<Program>> samplers;
  const std::string groups[] = {"a", "b", "c"};
  for (int i = 0; i < 3; ++i) samplers.push_back(site.start_sampler("sampler" + std::to_string(i), i, groups[i]));
  run->wait_for_log(" joins", kSoon, 3);
  wait_for_updates(*run, 5, kSoon);

  samplers[0]->signal(SIGKILL);
  site.network().unplug(Site::sampler_machine(1));
  samplers[2]->signal(SIGSTOP);
  samplers.push_back(site.start_sampler("late", 3, "a"));
  run->wait_for_log(" was lost", kSoon, 3);
  run->wait_for_log(" joins", kSoon, 4);
  wait_for_updates(*run, 5, kSoon);
  site.network().plug(Site::sampler_machine(1));
  samplers[2]->signal(SIGCONT);
  run->wait_for_log(" joins", kSoon, 6);
  wait_for_updates(*run, 5, kSoon);

  CHECK(interrupt(*run, kSoon) == 0);
  CHECK(samplers[0]->wait(kSoon) == 128 + SIGKILL);
  for (size_t i = 1; i < samplers.size(); ++i) {
    const int code = interrupt(*samplers[i], kSoon);
    INFO(samplers[i]->log());
    CHECK(code == 0);
  }
  const std::string log = run->log();
  CAPTURE(log);
  CHECK(occurrences(log, " joins") == 6);
  CHECK(occurrences(log, " was lost") == 3);
  const Accounts accounts = take_accounts(site.folder() / "runs/small-0", kGroupSize);
  CHECK(all(accounts.faults).empty());
  CHECK(accounts.updates >= 15);
  CHECK(accounts.by_group.size() == 3);
  CHECK(accounts.moved > 0);
}

}  // namespace motley::fleet
