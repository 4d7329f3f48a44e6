// Two runs on one machine, and what is left of one that is killed.
#include <catch2/catch.hpp>

#include "tests/fleet/fleet_run.h"

namespace motley::fleet {
namespace {

constexpr Seconds kSoon{30};

}  // namespace

TEST_CASE("two runs at once have ports of their own; what joined one that is killed ends by itself") {
  const TemporaryFolder folder;
  folder.write("x.toml", small_experiment());
  const auto words = motley({"run", "x.toml", "--listen", "127.0.0.1:0"});
  Program one(folder, "one", words), other(folder, "other", words);
  const uint16_t port = listening_port(one, kSoon), other_port = listening_port(other, kSoon);
  CHECK(port != 0);
  CHECK(port != other_port);
  const auto sampler = [&](const char* name, uint16_t at) {
    return std::make_unique<Program>(
        folder, name, sampler_words({.at = "127.0.0.1:" + std::to_string(at), .group = "a", .patience = 1}));
  };
  const auto of_one = sampler("of_one", port), of_other = sampler("of_other", other_port);
  wait_for_updates(one, 3, kSoon);
  wait_for_updates(other, 3, kSoon);
  one.signal(SIGKILL);
  CHECK(of_one->wait(kSoon) == 1);
  CHECK(of_one->log().find("no run at 127.0.0.1:" + std::to_string(port)) != std::string::npos);
  wait_for_updates(other, 3, kSoon);
  CHECK(interrupt(other, kSoon) == 0);
  CHECK(interrupt(*of_other, kSoon) == 0);
  CHECK(folder.read("runs/small-0/experiment.toml").size() > 100);
  CHECK(folder.read("runs/small-0-2/experiment.toml").size() > 100);
}

TEST_CASE("a port that is taken is refused before anything is made") {
  const TemporaryFolder folder;
  folder.write("x.toml", small_experiment());
  Program one(folder, "one", motley({"run", "x.toml", "--listen", "127.0.0.1:0"}));
  const std::string address = "127.0.0.1:" + std::to_string(listening_port(one, kSoon));
  Program second(folder, "second", motley({"run", "x.toml", "--listen", address}));
  CHECK(second.wait(kSoon) == 2);
  CHECK(second.log().find("127.0.0.1:") != std::string::npos);  // that one, or a port beside it which is taken, too
  CHECK(second.log().find("listen") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(folder / "runs/small-0-2"));
}

}  // namespace motley::fleet
