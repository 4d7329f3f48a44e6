// External environments in Python, as they ship, with the real binary.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <optional>

#include "tests/app/binary.h"

namespace motley::app {
namespace {

const std::string kExternal = MOTLEY_SOURCE_DIR "/experiments/external/";

/// A server in Python that has opened its socket and runs until the end of the test.
class Server {
 public:
  Server(const std::string& script, const std::filesystem::path& socket) {
    std::vector<std::string> words{"/usr/bin/python3", kExternal + script, "ipc://" + socket.string()};
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    REQUIRE(posix_spawn(&pid_, argv[0], nullptr, nullptr, argv.data(), environ) == 0);
    for (int i = 0; i < 3000 && !std::filesystem::exists(socket); ++i) usleep(10000);
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  ~Server() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

 private:
  pid_t pid_ = 0;
};

std::vector<std::string> sets_of(const TemporaryFolder& folder) {
  return {"tasks.0.address=ipc://" + (folder / "socket").string(), "run.updates=2", "eval.prompts=4"};
}

nlohmann::json last_row(const TemporaryFolder& folder, const std::string& file) {
  const std::string rows = folder.read(file);
  return nlohmann::json::parse(rows.substr(rows.rfind('\n', rows.size() - 2) + 1));
}

TEST_CASE("an environment in Python, episodes of one reply: the example trains, and its held-out problems are scored",
          "[external]") {
  const TemporaryFolder folder;
  const Server server("reverse.py", folder / "socket");
  const Ended ended = run_binary(folder, run_arguments(kExternal + "reverse.toml", sets_of(folder)));
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
  const Server server("guess.py", folder / "socket");
  const Ended ended = run_binary(folder, run_arguments(kExternal + "guess.toml", sets_of(folder)));
  CAPTURE(ended.err);
  REQUIRE(ended.code == 0);
  const nlohmann::json row = last_row(folder, "runs/guess-0/metrics.jsonl");
  CHECK(row.at("samples/failed") == 0);
  CHECK(row.at("episode/turns").get<double>() > 1.0);
  CHECK(row.at("episode/end/found").get<double>() > 0.3);  // by chance one in ten a turn
}

TEST_CASE("an environment that goes away for good ends the run with its cause", "[external]") {
  const TemporaryFolder folder;
  std::optional<Server> server(std::in_place, "reverse.py", folder / "socket");
  std::vector<std::string> sets = sets_of(folder);
  sets.insert(sets.end(), {"warmstart.steps=0", "run.updates=1000000", "run.keep_trajectories=none"});
  sets.emplace_back("tasks.0.away_seconds=1");
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
