// External environments in Python, as they ship, with the real binary.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <optional>

#include "tests/app/binary.h"

namespace motley::app {
namespace {

const std::string kExternal = MOTLEY_SOURCE_DIR "/experiments/external/";

/// A program that runs until the end of the test.
class Program {
 public:
  explicit Program(std::vector<std::string> words) {
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    REQUIRE(posix_spawn(&pid_, argv[0], nullptr, nullptr, argv.data(), environ) == 0);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

 private:
  pid_t pid_ = 0;
};

std::vector<std::string> sets_of(const std::string& address) {
  return {"tasks.0.address=" + address, "run.updates=2", "eval.prompts=4"};
}

nlohmann::json last_row(const TemporaryFolder& folder, const std::string& file) {
  const std::string rows = folder.read(file);
  return nlohmann::json::parse(rows.substr(rows.rfind('\n', rows.size() - 2) + 1));
}

TEST_CASE("an environment in Python, episodes of one reply: the example trains, and its held-out problems are scored",
          "[external]") {
  const TemporaryFolder folder;
  const std::string address = "ipc://" + (folder / "socket").string();
  const Program server({"/usr/bin/python3", kExternal + "reverse.py", address});
  const Ended ended = run_binary(folder, run_arguments(kExternal + "reverse.toml", sets_of(address)));
  CAPTURE(ended.err);
  REQUIRE(ended.code == 0);
  const nlohmann::json row = last_row(folder, "runs/reverse-0/metrics.jsonl");
  CHECK(row.at("samples/failed") == 0);
  CHECK(row.at("reward/letters").get<double>() > 0.3);  // the demonstrations were learned from
  CHECK(row.contains("eval/pass_at_1"));
}

TEST_CASE("an environment in Python, episodes of several replies: the example learns from its demonstrations",
          "[external]") {
  const TemporaryFolder folder;
  const std::string address = "ipc://" + (folder / "socket").string();
  const Program server({"/usr/bin/python3", kExternal + "guess.py", address});
  const Ended ended = run_binary(folder, run_arguments(kExternal + "guess.toml", sets_of(address)));
  CAPTURE(ended.err);
  REQUIRE(ended.code == 0);
  const nlohmann::json row = last_row(folder, "runs/guess-0/metrics.jsonl");
  CHECK(row.at("samples/failed") == 0);
  CHECK(row.at("episode/turns").get<double>() > 1.0);
  CHECK(row.at("episode/end/found").get<double>() > 0.3);  // by chance one in ten a turn
}

TEST_CASE("an environment that goes away for good ends the run with its cause", "[external]") {
  const TemporaryFolder folder;
  const std::string address = "ipc://" + (folder / "socket").string();
  std::optional<Program> server(std::in_place,
                                std::vector<std::string>{"/usr/bin/python3", kExternal + "reverse.py", address});
  std::vector<std::string> sets = sets_of(address);
  sets.insert(sets.end(), {"warmstart.steps=0", "run.updates=1000000", "run.keep_trajectories=none"});
  sets.emplace_back("tasks.0.away_seconds=1");  // and Python has this long to start
  Binary binary(folder, run_arguments(kExternal + "reverse.toml", sets));
  while (binary.running() && binary.log().find("reward 0.") == std::string::npos) usleep(10000);
  server.reset();
  const Ended ended = binary.wait();
  CAPTURE(ended.err);
  CHECK(ended.code == 1);
  CHECK(ended.err.find("no server for") != std::string::npos);
}

}  // namespace
}  // namespace motley::app
