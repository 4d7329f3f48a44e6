// Two runs on one machine.
#include <catch2/catch.hpp>

#include "tests/fleet/fleet_run.h"

namespace motley::fleet {
namespace {

constexpr Seconds kSoon{30};

/// The port that a run says it listens on.
uint16_t port_of(Program& run) {
  const std::string before = "127.0.0.1:";
  run.wait_for_log(before, kSoon);
  const std::string log = run.log();
  return static_cast<uint16_t>(std::atoi(log.c_str() + log.find(before) + before.size()));
}

}  // namespace

TEST_CASE("a port that is taken is refused before anything is made") {
  const TemporaryFolder folder;
  folder.write("x.toml", small_experiment());
  Program one(folder, "one", motley({"run", "x.toml", "--listen", "127.0.0.1:0"}));
  const std::string address = "127.0.0.1:" + std::to_string(port_of(one));
  Program second(folder, "second", motley({"run", "x.toml", "--listen", address}));
  CHECK(second.wait(kSoon) == 2);
  CHECK(second.log().find(address) != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(folder / "runs/small-0-2"));
}

}  // namespace motley::fleet
