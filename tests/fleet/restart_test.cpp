// The run itself is killed: its samplers come back to the one that goes on from its checkpoint.
#include <catch2/catch.hpp>

#include "tests/fleet/accounts.h"
#include "tests/fleet/fleet_run.h"

namespace motley::fleet {

constexpr Seconds kSoon{30}, kReconnection{30};

TEST_CASE("kill -9 of a run, and its resume at the same address: its samplers come back by themselves", "[network]") {
  if (!networks_available()) return;
  const Site site(3);
  site.folder().write("x.toml", small_experiment());
  auto run = site.start_run("run", {"x.toml"});
  std::vector<std::unique_ptr<Program>> samplers;
  for (int i = 0; i < 3; ++i)
    samplers.push_back(
        site.start_sampler("sampler" + std::to_string(i), i, std::string(1, static_cast<char>('a' + i))));
  wait_for_updates(*run, 25, kSoon);
  run->signal(SIGKILL);
  CHECK(run->wait(kSoon) == 128 + SIGKILL);
  for (const auto& sampler : samplers) sampler->wait_for_log("trying again", kSoon);

  run = site.start_run("resumed", {"--resume", "runs/small-0"});
  const auto start = Clock::now();
  run->wait_for_log(" joins", kReconnection, 3);
  WARN("all samplers were back " << since(start).count() << " s after the resumed run was started");
  wait_for_updates(*run, 45, kSoon);  // from 0, where no line is there yet
  CHECK(interrupt(*run, kSoon) == 0);
  for (const auto& sampler : samplers) CHECK(interrupt(*sampler, kSoon) == 0);
  const Accounts accounts = take_accounts(site.folder() / "runs/small-0", kGroupSize);
  for (const std::string& fault : accounts.faults) FAIL_CHECK(fault);
  CHECK(accounts.by_group.size() == 3);
  CHECK(accounts.updates >= 40);
}

}  // namespace motley::fleet
