// The quickstart on three machines, undisturbed and disturbed (make fleet): what it learns is the same.
#include <catch2/catch.hpp>
#include <iostream>

#include "tests/fleet/accounts.h"
#include "tests/fleet/fleet_run.h"

namespace motley::fleet {
namespace {

constexpr Seconds kRunLimit{1200}, kSoon{60}, kPartition{20};
// pass@1 on 128 problems, four answers each, has a standard error of 0.006 at 0.98; seeds differ by about 0.01.
constexpr double kNoise = 0.03;

struct Played {
  double pass_at_1 = 0;
  Accounts accounts;
  std::string log;
};

/// Waits until the run has got past an update, however long that takes.
void wait_for_update(Program& run, int64_t update) { wait_for_updates(run, update, kRunLimit); }

/// A killed sampler, one without a network for 20 seconds, one that is stopped as long, and one that joins late.
void disturb(const Site& site, std::vector<std::unique_ptr<Program>>& samplers, Program& run) {
  wait_for_update(run, 20);
  samplers[0]->signal(SIGKILL);
  site.network().unplug(Site::sampler_machine(1));
  samplers[2]->signal(SIGSTOP);
  samplers.push_back(site.start_sampler("late", 3, "b200"));
  std::this_thread::sleep_for(kPartition);
  site.network().plug(Site::sampler_machine(1));
  samplers[2]->signal(SIGCONT);
  run.wait_for_log(" joins", kSoon, 6);
}

Played play(int seed, bool disturbed) {
  const Site site(4);
  std::vector<std::string> words{MOTLEY_SOURCE_DIR "/experiments/quickstart.toml", "--seed", std::to_string(seed)};
  const std::string groups[] = {"b200", "h100", "a100"};
  for (const std::string& group : groups) words.insert(words.end(), {"--set", "samplers." + group + ".replicas=0"});
  const auto run = site.start_run("run", words);
  std::vector<std::unique_ptr<Program>> samplers;
  for (int i = 0; i < 3; ++i) samplers.push_back(site.start_sampler(groups[i], i, groups[i], "", 600));
  if (disturbed) disturb(site, samplers, *run);
  if (run->wait(kRunLimit) != 0) throw std::runtime_error(run->log_end());
  for (size_t i = disturbed ? 1 : 0; i < samplers.size(); ++i) {
    INFO(samplers[i]->log_end());
    CHECK(samplers[i]->wait(kSoon) == 0);  // by itself: the run is over
  }
  const auto folder = site.folder() / ("runs/quickstart-" + std::to_string(seed));
  return {metric(folder, "eval/pass_at_1").back(), take_accounts(folder, 8), run->log()};
}

}  // namespace

TEST_CASE("the quickstart learns as well on samplers that vanish", "[.fleet]") {
  if (!networks_available()) return;
  const char* const setting = std::getenv("FLEET_SEEDS");
  const int seeds = setting ? std::atoi(setting) : 3;
  double difference = 0;
  for (int seed = 0; seed < seeds; ++seed) {
    const Played calm = play(seed, false);
    const Played disturbed = play(seed, true);
    std::cout << "seed " << seed << ": pass@1 " << calm.pass_at_1 << " undisturbed, " << disturbed.pass_at_1
              << " disturbed; of its " << disturbed.accounts.samples << " samples " << disturbed.accounts.moved
              << " moved and " << disturbed.accounts.failed << " failed" << std::endl;
    for (const Played* each : {&calm, &disturbed}) {
      for (const std::string& fault : each->accounts.faults) FAIL_CHECK(fault);
      CHECK(each->accounts.updates == 240);
    }
    CAPTURE(disturbed.log);
    CHECK(occurrences(disturbed.log, " joins") == 6);
    CHECK(occurrences(disturbed.log, " was lost") == 3);
    CHECK(disturbed.accounts.moved > 0);
    difference += (disturbed.pass_at_1 - calm.pass_at_1) / seeds;
  }
  std::cout << "disturbed minus undisturbed, mean of " << seeds << " seeds: " << difference << std::endl;
  CHECK(difference > -kNoise);
}

}  // namespace motley::fleet
