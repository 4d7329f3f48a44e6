// Ten minutes of everything that can happen to a fleet (make chaos), and its schedule.
#include "tests/fleet/chaos.h"

#include <catch2/catch.hpp>
#include <iostream>
#include <set>

#include "tests/fleet/chaos_schedule.h"
#include "tests/fleet/network.h"

namespace motley::fleet {
namespace {

double setting(const char* name, double otherwise) {
  const char* const text = std::getenv(name);
  return text ? std::atof(text) : otherwise;
}

}  // namespace

TEST_CASE("a schedule of disturbances follows from its seed, and has all kinds") {
  const auto text = [](uint64_t seed) {
    std::string lines;
    for (const Disturbance& each : chaos_schedule(seed, 600, 4, 10)) lines += describe(each) + "\n";
    return lines;
  };
  CHECK(text(1) == text(1));
  CHECK(text(1) != text(2));
  std::set<Disturbance::Kind> kinds;
  std::vector<double> free_at(4, 0.0);
  double last = 0;
  for (const Disturbance& each : chaos_schedule(1, 600, 4, 10)) {
    kinds.insert(each.kind);
    CHECK(each.at >= last);
    last = each.at;
    if (each.kind == Disturbance::Kind::restart) continue;
    double& free = free_at.at(static_cast<size_t>(each.sampler));
    CHECK(each.at >= free);
    free = each.at + each.seconds;
    CHECK(free <= 600);
  }
  CHECK(kinds.size() == 6);
  for (const char* word : {"kill and resume", "stall", "drop", "delay", "rate", "reset", "abandon", "leave", "unplug"})
    CHECK(text(1).find(word) != std::string::npos);
  CHECK(describe({.kind = Disturbance::Kind::stop, .at = 12.34, .sampler = 2, .seconds = 4.5}) ==
        "  12.3 s  sampler 2: stop, for 4.5 s");
}

TEST_CASE("chaos", "[.chaos]") {
  if (!networks_available()) return;
  const ChaosOptions options{.seed = static_cast<uint64_t>(setting("CHAOS_SEED", 1)),
                             .seconds = 60 * setting("CHAOS_MINUTES", 10)};
  const ChaosResult result = run_chaos(options, std::cout);
  const Accounts& accounts = result.accounts;
  std::cout << "updates " << accounts.updates << ", samples " << accounts.samples << ", of them failed "
            << accounts.failed << " and moved " << accounts.moved << "; joins " << result.joins << ", losses "
            << result.losses << ", restarts " << result.restarts << " (longest reconnection "
            << result.longest_reconnection << " s); grown: " << result.descriptors_grown << " descriptors, "
            << static_cast<double>(result.bytes_grown) * 1e-6 << " MB" << std::endl;
  INFO("CHAOS_SEED=" << options.seed << " repeats this schedule");
  for (const std::string& fault : result.faults) FAIL_CHECK(fault);
  for (const std::string& fault : accounts.faults) FAIL_CHECK(fault);
  CHECK(accounts.updates >= 45);
  CHECK(result.descriptors_grown <= 8);
  CHECK(result.bytes_grown <= int64_t{64} << 20);
}

}  // namespace motley::fleet
