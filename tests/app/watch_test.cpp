// A real run that collapses: a learning rate that rises far too high, and plain GRPO.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tests/app/binary.h"

namespace motley::app {
namespace {

const std::string kCollapsing = R"(name = "collapsing"
[run]
updates = 24
async = false
checkpoint_every = 100
keep_trajectories = "none"
)" + model_section(32) + R"([[tasks]]
env = "arithmetic"
digits = 1
[warmstart]
steps = 120
batch = 64
lr = 1e-2
[sampling]
max_tokens = 4
[algo]
correction = "grpo"
prompts = 8
group_size = 8
[trainer]
profile = "fp32"
lr = 0.05
warmup_updates = 24
[eval]
every = 100
prompts = 4
samples = 1
k = [1]
[watch]
window = 4
)";

std::vector<nlohmann::json> rows_of(const TemporaryFolder& folder) {
  std::vector<nlohmann::json> rows;
  std::istringstream in(folder.read("runs/collapsing-0/metrics.jsonl"));
  for (std::string line; std::getline(in, line);) rows.push_back(nlohmann::json::parse(line));
  return rows;
}

TEST_CASE("a run that collapses is stopped by its watch, with a checkpoint, the cause and exit code 1; and may go on") {
  const TemporaryFolder folder;
  folder.write("x.toml", kCollapsing);
  const Ended stopped = run_binary(folder, run_arguments("x.toml", {"watch.reward=stop"}, {"--json"}));
  CAPTURE(stopped.err);
  CHECK(stopped.code == 1);
  const auto summary = nlohmann::json::parse(stopped.out);
  CHECK(summary.at("interrupted") == true);
  const int64_t update = summary.at("updates").get<int64_t>();
  CHECK(update < 24);
  const std::string cause = "alarm reward after update " + std::to_string(update) + ": reward/mean fell from ";
  CHECK(summary.at("alarm").get<std::string>().starts_with(cause));
  CHECK(stopped.err.find("motley: error: the run was stopped by its watch: " + cause) != std::string::npos);
  CHECK(std::filesystem::exists(folder / ("runs/collapsing-0/checkpoints/step-" + std::to_string(update))));
  const auto rows = rows_of(folder);
  REQUIRE(rows.back().at("update") == update);
  CHECK(rows.back().at("alarm/reward") == 1.0);
  CHECK(rows.at(rows.size() - 2).at("alarm/reward") == 0.0);
  CHECK(folder.read("runs/collapsing-0/report.html").find("<li>reward: updates ") != std::string::npos);

  const Ended resumed = run_binary(folder, {"run", "--resume", "runs/collapsing-0", "--set", "watch.reward=warn"});
  CAPTURE(resumed.err);
  CHECK(resumed.code == 0);
  CHECK(resumed.err.find("stopped by its watch") == std::string::npos);
  // The watch went on from its state: every alarm is that of a run which nobody stopped.
  const TemporaryFolder other;
  other.write("x.toml", kCollapsing);
  CHECK(run_binary(other, run_arguments("x.toml", {})).code == 0);
  CHECK(clockless(folder.read("runs/collapsing-0/metrics.jsonl")) ==
        clockless(other.read("runs/collapsing-0/metrics.jsonl")));
}

TEST_CASE("an alarm's other actions: a message, a checkpoint, nothing") {
  const TemporaryFolder folder;
  folder.write("x.toml", kCollapsing);
  const Ended ended =
      run_binary(folder, run_arguments("x.toml", {"watch.reward=checkpoint", "watch.kl=off", "watch.window=3"}));
  CAPTURE(ended.err);
  CHECK(ended.code == 0);
  int64_t raised = 0;
  for (const auto& row : rows_of(folder)) {
    CHECK(!row.contains("alarm/kl"));
    if (raised == 0 && row.value("alarm/reward", 0.0) != 0.0) raised = row.at("update").get<int64_t>();
  }
  REQUIRE(raised > 0);
  CHECK(ended.err.find("\nalarm reward after update " + std::to_string(raised) + ": ") != std::string::npos);
  CHECK(std::filesystem::exists(folder / ("runs/collapsing-0/checkpoints/step-" + std::to_string(raised))));
}

}  // namespace
}  // namespace motley::app
