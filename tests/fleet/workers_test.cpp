// A run whose calls into tasks are made by other processes: one of them is killed in the middle of episodes, one
// leaves, one outlives the run's own death.
#include <catch2/catch.hpp>

#include "tests/fleet/accounts.h"
#include "tests/fleet/fleet_run.h"

namespace motley::fleet {
namespace {

constexpr Seconds kLong{30};

/// Games of several replies with a program in Python, and sums; a sampler and a worker of its own.
std::string games_and_sums(const std::string& address) {
  return R"(name = "games"
[run]
updates = 1000000
concurrency = 64
workers = 1
checkpoint_every = 5
[model]
layers = 1
width = 32
heads = 2
kv_heads = 1
max_positions = 32
[[tasks]]
env = "external"
address = ")" +
         address + R"("
turns = 4
[[tasks]]
env = "arithmetic"
digits = 1
[sampling]
max_tokens = 3
[algo]
correction = "sc+mis"
prompts = 8
group_size = 4
[[samplers]]
name = "a"
[eval]
every = 1000000
prompts = 2
samples = 1
k = [1]
)";
}

}  // namespace

TEST_CASE("workers of other processes: one is killed, one leaves, one comes back to the run that goes on") {
  const TemporaryFolder folder;
  const std::string address = "ipc://" + (folder / "socket").string();
  folder.write("x.toml", games_and_sums(address));
  Program game(folder, "game", {"/usr/bin/python3", MOTLEY_SOURCE_DIR "/experiments/external/guess.py", address});
  wait_until(kLong, [&] { return std::filesystem::exists(folder / "socket"); });
  auto run = std::make_unique<Program>(folder, "run", motley({"run", "x.toml", "--listen", "127.0.0.1:0"}));
  const std::string at = "127.0.0.1:" + std::to_string(listening_port(*run, kLong));
  const auto worker = [&](const std::string& name) {
    auto program = std::make_unique<Program>(folder, name, motley({"worker", "--join", at, "--slots", "3"}));
    program->wait_for_log("makes 3 calls at once into external, arithmetic", kLong);
    return program;
  };
  const auto killed = worker("killed"), leaves = worker("leaves"), stays = worker("stays");
  wait_for_updates(*run, 5, kLong);
  killed->signal(SIGKILL);
  run->wait_for_log("was lost (its process is gone", kLong);
  CHECK(interrupt(*leaves, kLong) == 0);
  CHECK(leaves->log().find("left the run") != std::string::npos);
  run->wait_for_log(" left; its calls are made elsewhere, its interactions begin anew", kLong);
  wait_for_updates(*run, 5, kLong);
  run->signal(SIGKILL);
  CHECK(run->wait(kLong) == 128 + SIGKILL);

  stays->wait_for_log("trying again", kLong);
  run = std::make_unique<Program>(folder, "resumed",
                                  motley({"run", "--resume", "runs/games-0", "--listen", at, "--stop-after",
                                          std::to_string(updates_of(run->log()) + 10)}));
  run->wait_for_log("worker 0 (", kLong);
  CHECK(run->wait(kLong) == 0);
  CHECK(interrupt(*stays, kLong) == 0);
  const Accounts accounts = take_accounts(folder / "runs/games-0", kGroupSize);
  for (const std::string& fault : accounts.faults) FAIL_CHECK(fault);
  CHECK(accounts.failed == 0);
  CHECK(accounts.updates >= 15);
}

}  // namespace motley::fleet
