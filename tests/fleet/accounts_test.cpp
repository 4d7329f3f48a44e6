// The accounts of a run see what is lost and what is there twice; a run that is killed and resumed has neither.
#include "tests/fleet/accounts.h"

#include <catch2/catch.hpp>
#include <fstream>

#include "actors/trajectory_file.h"
#include "tensor/model_file.h"
#include "tests/fleet/fleet_run.h"

namespace motley::fleet {
namespace {

namespace fs = std::filesystem;

std::string all(const std::vector<std::string>& texts) {
  std::string text;
  for (const std::string& each : texts) text += each + "\n";
  return text;
}

}  // namespace

TEST_CASE("kill -9 of an asynchronous run, and its resume: every finished episode once") {
  const TemporaryFolder folder;
  folder.write("x.toml", small_experiment(1));
  {
    Program run(folder, "run", motley({"run", "x.toml", "--set", "run.checkpoint_every=5"}));
    run.wait_for_log("update    7/", Seconds(30));
    run.signal(SIGKILL);
    CHECK(run.wait(Seconds(5)) == 128 + SIGKILL);
  }
  Program resumed(folder, "resumed", motley({"run", "--resume", "runs/small-0", "--stop-after", "14"}));
  CHECK(resumed.wait(Seconds(60)) == 0);
  const fs::path run = folder / "runs/small-0";
  const Accounts accounts = take_accounts(run, kGroupSize);
  CHECK(all(accounts.faults).empty());
  CHECK(accounts.updates == 14);
  CHECK(accounts.samples == 14 * 8 * kGroupSize);
  CHECK(accounts.failed == 0);
  CHECK(accounts.by_group.size() == 3);

  const auto faults_with = [&](const auto& tamper) {
    const TemporaryFolder copy;
    fs::copy(run, copy.path(), fs::copy_options::recursive);
    tamper(copy.path());
    return all(take_accounts(copy.path(), kGroupSize).faults);
  };
  const std::string twice = faults_with([](const fs::path& there) {
    fs::copy_file(actors::trajectory_path(there, 7), actors::trajectory_path(there, 8),
                  fs::copy_options::overwrite_existing);
  });
  CHECK(occurrences(twice, "was in an update before") == 8);
  CHECK(occurrences(twice, "was taken at another version") == 1);
  CHECK(occurrences(twice, "is lost") == 8);
  const std::string cut = faults_with([](const fs::path& there) {
    auto samples = actors::read_trajectories(actors::trajectory_path(there, 3), 1000);
    samples[1] = samples[0];
    samples[5].failure = "it fell";
    actors::write_trajectories(actors::trajectory_path(there, 3), 3, samples);
  });
  CHECK(occurrences(cut, "is twice in it") == 1);
  CHECK(occurrences(cut, "has 3 samples") == 1);
  CHECK(occurrences(cut, "samples/failed counts") == 1);
  const std::string rows = faults_with([](const fs::path& there) {
    std::string text = read_file(there / "metrics.jsonl");
    text.erase(0, text.find('\n') + 1);
    std::ofstream(there / "metrics.jsonl") << text;
  });
  CHECK(occurrences(rows, "row 0 of metrics.jsonl is update 1") == 1);
  CHECK(occurrences(rows, "14 rows") == 1);
}

}  // namespace motley::fleet
