// The promises of a lock-step run and of its checkpoints, kept by the binary: same bits again, after a resume, after an
// interrupt, a kill and a full disk.
#include <catch2/catch.hpp>
#include <regex>
#include <thread>

#include "tests/app/binary.h"

namespace motley::app {
namespace {

namespace fs = std::filesystem;

/// File by file, as bytes.
void require_equal_checkpoints(const TemporaryFolder& one, const std::string& first, const TemporaryFolder& other,
                               const std::string& second) {
  size_t files = 0;
  for (const auto& entry : fs::directory_iterator(one / first)) {
    const std::string name = entry.path().filename().string();
    CAPTURE(name);
    CHECK((one.read(first + "/" + name) == other.read(second + "/" + name)));
    ++files;
  }
  CHECK(files == 5);  // model, config, tokenizer, optimizer, state
}

uint64_t newest_step(const fs::path& run) {
  uint64_t newest = 0;
  if (!fs::exists(run / "checkpoints")) return newest;
  for (const auto& entry : fs::directory_iterator(run / "checkpoints")) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("step-")) newest = std::max<uint64_t>(newest, std::stoull(name.substr(5)));
  }
  return newest;
}

bool writing_checkpoint(const fs::path& run) {
  std::error_code gone;  // the folder changes while it is read
  for (fs::directory_iterator entry(run / "checkpoints", gone), end; !gone && entry != end; entry.increment(gone))
    if (entry->path().extension() == ".partial") return true;
  return false;
}

}  // namespace

TEST_CASE("the same seed gives the same metrics and weights, whatever the threads and the cache of warm starts") {
  const TemporaryFolder folder, fresh;
  folder.write("x.toml", kSmallRun);
  fresh.write("x.toml", kSmallRun);
  const std::vector<std::string> one{"run.threads=1", "run.keep_trajectories=none"};
  const Ended first = run_binary(folder, run_arguments("x.toml", one));
  CAPTURE(first.err);
  REQUIRE(first.code == 0);
  REQUIRE(run_binary(folder, run_arguments("x.toml", {"run.threads=4", "run.keep_trajectories=none"})).code == 0);
  REQUIRE(run_binary(fresh, run_arguments("x.toml", {"run.threads=2", "run.keep_trajectories=none"})).code == 0);
  const std::string metrics = clockless(folder.read("runs/small-0/metrics.jsonl"));
  CHECK(metrics.find("eval/fp32/pass_at_2") != std::string::npos);
  CHECK(std::regex_search(metrics, std::regex("\"steps/skipped\":[1-9]")));  // the loss scale has a history too
  CHECK(metrics.find("\"grad_norm\":") != std::string::npos);
  CHECK((clockless(folder.read("runs/small-0-2/metrics.jsonl")) == metrics));
  CHECK((clockless(fresh.read("runs/small-0/metrics.jsonl")) == metrics));
  require_equal_checkpoints(folder, "runs/small-0/checkpoints/step-10", folder, "runs/small-0-2/checkpoints/step-10");
  require_equal_checkpoints(folder, "runs/small-0/checkpoints/step-10", fresh, "runs/small-0/checkpoints/step-10");

  REQUIRE(run_binary(fresh, run_arguments("x.toml", one, {"--seed", "1"})).code == 0);
  CHECK((clockless(fresh.read("runs/small-1/metrics.jsonl")) != metrics));
}

TEST_CASE("ten updates, and five resumed for five more: the same bytes") {
  const TemporaryFolder whole, halves;
  whole.write("x.toml", kSmallRun);
  halves.write("x.toml", kSmallRun);
  REQUIRE(run_binary(whole, {"run", "x.toml"}).code == 0);
  REQUIRE(run_binary(halves, {"run", "x.toml", "--stop-after", "5"}).code == 0);
  const Ended resumed = run_binary(halves, {"run", "x.toml", "--resume", "runs/small-0"});
  CAPTURE(resumed.err);
  REQUIRE(resumed.code == 0);
  for (const std::string step : {"5", "10"}) {
    CAPTURE(step);
    const std::string checkpoint = "runs/small-0/checkpoints/step-" + step;
    require_equal_checkpoints(whole, checkpoint, halves, checkpoint);
  }
  const std::string metrics = clockless(whole.read("runs/small-0/metrics.jsonl"));
  CHECK((clockless(halves.read("runs/small-0/metrics.jsonl")) == metrics));
  for (int update = 1; update <= 10; ++update) {
    CAPTURE(update);
    const std::string number = std::to_string(update);
    const std::string file = "runs/small-0/trajectories/update-" + std::string(6 - number.size(), '0') + number;
    CHECK_FALSE(whole.read(file + ".msgpack").empty());
    CHECK((whole.read(file + ".msgpack") == halves.read(file + ".msgpack")));
  }
}

TEST_CASE("Ctrl-C in an asynchronous run leaves a checkpoint that --resume takes; twice ends it at once") {
  const bool twice = GENERATE(false, true);
  const TemporaryFolder folder;
  std::string toml = kSmallRun;
  const std::string imposed = "staleness = [0, 2]\n";
  toml.erase(toml.find(imposed), imposed.size());  // asynchronous runs have their own
  folder.write("x.toml", toml);
  Binary run(folder, run_arguments("x.toml", {"run.async=true", "run.updates=100000", "run.keep_trajectories=none",
                                              "run.concurrency=16", "samplers.a.max_sequences=16"}));
  while (run.running() && run.log().find("update    2/") == std::string::npos) std::this_thread::yield();
  run.signal(SIGINT);
  if (twice) {
    while (run.running()) run.signal(SIGINT);
    const int code = run.wait().code;
    CHECK((code == 130 || code == 0));  // 0: the clean end was quicker
    return;
  }
  const Ended ended = run.wait();
  CAPTURE(ended.err);
  REQUIRE(ended.code == 0);
  const uint64_t step = newest_step(folder / "runs/small-0");
  CHECK(step >= 2);
  CHECK(ended.err.find("motley run --resume runs/small-0") != std::string::npos);
  const Ended resumed =
      run_binary(folder, {"run", "--resume", "runs/small-0", "--stop-after", std::to_string(step + 2)});
  CAPTURE(resumed.err);
  CHECK(resumed.code == 0);
  CHECK(newest_step(folder / "runs/small-0") == step + 2);
}

TEST_CASE("Ctrl-C in the warm start leaves nothing, and offers nothing to resume") {
  const TemporaryFolder folder;
  folder.write("x.toml", kSmallRun);
  Binary run(folder, run_arguments("x.toml", {"warmstart.steps=1000000"}));
  while (run.running() && run.log().find("warm start") == std::string::npos) std::this_thread::yield();
  run.signal(SIGINT);
  const Ended ended = run.wait();
  CAPTURE(ended.err);
  CHECK(ended.code == 0);
  CHECK(ended.err.find("--resume") == std::string::npos);
  CHECK_FALSE(fs::exists(folder / "runs/small-0"));
}

TEST_CASE("kill -9 in the middle of a checkpoint write: the run goes on from the one before, to the same bytes") {
  const TemporaryFolder folder, undisturbed;
  const std::vector<std::string> sets{"run.checkpoint_every=1", "run.updates=100000", "trainer.schedule=constant"};
  folder.write("x.toml", kSmallRun);
  undisturbed.write("x.toml", kSmallRun);
  const fs::path run_folder = folder / "runs/small-0";
  int in_mid_write = 0;
  for (int round = 0; round < 4; ++round) {
    const uint64_t before = newest_step(run_folder);
    const auto arguments =
        round == 0 ? run_arguments("x.toml", sets) : std::vector<std::string>{"run", "--resume", "runs/small-0"};
    Binary run(folder, arguments);
    while (run.running() && newest_step(run_folder) < before + 2) std::this_thread::yield();
    while (run.running() && newest_step(run_folder) < before + 50 && !writing_checkpoint(run_folder)) {
    }
    run.signal(SIGKILL);
    CHECK(run.wait().code == -1);
    in_mid_write += writing_checkpoint(run_folder) ? 1 : 0;
  }
  CHECK(in_mid_write > 0);
  const std::string last = std::to_string(newest_step(run_folder) + 1);
  const Ended resumed = run_binary(folder, {"run", "--resume", "runs/small-0", "--stop-after", last});
  CAPTURE(resumed.err);
  REQUIRE(resumed.code == 0);
  CHECK_FALSE(writing_checkpoint(run_folder));
  REQUIRE(run_binary(undisturbed, run_arguments("x.toml", sets, {"--stop-after", last})).code == 0);
  const std::string checkpoint = "runs/small-0/checkpoints/step-" + last;
  require_equal_checkpoints(folder, checkpoint, undisturbed, checkpoint);
  CHECK((clockless(folder.read("runs/small-0/metrics.jsonl")) ==
         clockless(undisturbed.read("runs/small-0/metrics.jsonl"))));
}

TEST_CASE("a disk that is full during a checkpoint: exit code 1 with the cause, and the one before goes on") {
  const TemporaryFolder folder, undisturbed;
  folder.write("x.toml", kSmallRun);
  undisturbed.write("x.toml", kSmallRun);
  REQUIRE(run_binary(folder, {"run", "x.toml", "--stop-after", "4"}).code == 0);
  const auto size = [&](const char* file) {
    return fs::file_size(folder / (std::string("runs/small-0/checkpoints/step-4/") + file));
  };
  // A limit between the two files: weights can be written, the optimizer's state cannot. In blocks of 512 bytes.
  const auto blocks = (size("model.safetensors") + size("optimizer.safetensors")) / 2 / 512;
  const Ended full = run_binary(folder, {"run", "--resume", "runs/small-0"},
                                "trap '' XFSZ && ulimit -f " + std::to_string(blocks) + " &&");
  CAPTURE(full.err);
  CHECK(full.code == 1);
  CHECK(full.err.find("optimizer.safetensors") != std::string::npos);
  CHECK(full.err.find("cannot write: File too large") != std::string::npos);
  CHECK(newest_step(folder / "runs/small-0") == 4);
  REQUIRE(run_binary(folder, {"run", "--resume", "runs/small-0"}).code == 0);
  REQUIRE(run_binary(undisturbed, {"run", "x.toml"}).code == 0);
  require_equal_checkpoints(folder, "runs/small-0/checkpoints/step-10", undisturbed,
                            "runs/small-0/checkpoints/step-10");
}

}  // namespace motley::app
