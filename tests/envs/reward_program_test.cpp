#include "envs/reward_program.h"

#include <signal.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "envs/environment.h"
#include "tests/temporary_folder.h"

namespace motley::envs {
namespace {

std::string failure(const std::string& command, double seconds = 10, const std::string& input = "{}\n") {
  try {
    return "gave " + std::to_string(RewardProgram(command, seconds).score(input));
  } catch (const RewardProgramError& error) {
    return error.what();
  }
}

TEST_CASE("a reward program gets the episode on its stdin and prints a number from 0 to 1", "[program]") {
  CHECK(RewardProgram("echo 0.25", 10).score("") == 0.25);
  CHECK(RewardProgram("printf ' 1e-1\\n\\n'", 10).score("") == 0.1);
  CHECK(RewardProgram("test \"$(cat)\" = '{\"a\": 1}' && echo 1", 10).score("{\"a\": 1}\n") == 1.0);
  const std::string large(1 << 20, 'x');  // more than a pipe holds
  CHECK(RewardProgram("test $(wc -c) = 1048576 && echo 1", 10).score(large) == 1.0);
  CHECK(RewardProgram("echo 1", 10).score(large) == 1.0);  // reads nothing
}

TEST_CASE("a reward program that fails gives the reason, never a number", "[program]") {
  const std::string wanted = "; it must print a number from 0 to 1";
  CHECK(failure("true") == "the reward program printed nothing" + wanted);
  CHECK(failure("echo nan") == "the reward program printed \"nan\"" + wanted);
  CHECK(failure("echo inf") == "the reward program printed \"inf\"" + wanted);
  CHECK(failure("echo 1.5") == "the reward program printed \"1.5\"" + wanted);
  CHECK(failure("echo -0.5") == "the reward program printed \"-0.5\"" + wanted);
  CHECK(failure("echo good; echo why >&2") == "the reward program printed \"good\"" + wanted + ": why");
  CHECK(failure("echo 0.5 0.5") == "the reward program printed \"0.5 0.5\"" + wanted);
  CHECK(failure("echo 1; exit 3") == "the reward program ended with exit status 3");
  CHECK(failure("echo 1; echo a >&2; echo 'b\tc' >&2; exit 1") == "the reward program ended with exit status 1: b?c");
  CHECK(failure("echo 1; kill -TERM $$") == "the reward program was ended by signal 15");
  CHECK(failure("no-such-program-here").starts_with("the reward program ended with exit status 127: sh: "));
  CHECK(failure("yes") == "the reward program printed more than 4096 bytes");
  CHECK(failure("yes >&2 & head -c 100000 /dev/zero >&2; exit 1").starts_with("the reward program ended with exit"));
}

TEST_CASE("a reward program past its time is killed with what it started; so are children that it left behind",
          "[program]") {
  const TemporaryFolder folder;
  const std::string file = (folder / "pid").string();
  const auto begin = std::chrono::steady_clock::now();
  const bool hangs = GENERATE(true, false);
  const std::string start = "sleep 3600 & echo $! >" + file + ".part; mv " + file + ".part " + file + "; ";
  if (hangs) {
    CHECK(failure(start + "echo looking >&2; wait", 0.7) ==
          "the reward program took longer than 0.7 s and was killed: looking");
  } else {
    CHECK(failure(start + "echo 1") == "gave 1.000000");  // does not wait for the child, which holds its stdout
  }
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(5));
  const pid_t child = std::stoi(folder.read("pid"));
  const auto dead = [&] {  // or a zombie that nobody has waited for yet
    std::ifstream in("/proc/" + std::to_string(child) + "/stat");
    std::string text;
    return !std::getline(in, text) || text.find(") Z ") != std::string::npos;
  };
  for (int i = 0; i < 500 && !dead(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK(dead());
}

TEST_CASE("a reward program has clean signals and no descriptors of ours; many run at once and leave none behind",
          "[program]") {
  const auto descriptors = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
  };
  const TemporaryFolder folder;
  const std::ofstream ours(folder / "open");  // without close-on-exec
  CHECK(failure("ls -l /proc/self/fd | grep -q " + folder.path().string() + " && exit 1; echo 1") == "gave 1.000000");
  CHECK(failure("grep -q 'SigBlk:.0*$' /proc/self/status && echo 1") == "gave 1.000000");
  const auto before = descriptors();
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 5; ++i) right += failure("cat", 10, "0.5") == "gave 0.500000" ? 1 : 0;
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(right == 20);
  CHECK(descriptors() == before);
}

TEST_CASE("jsonl with a program: what it is given, and what belongs together", "[program]") {
  const TemporaryFolder folder;
  const std::string path = folder
                               .write("x.jsonl",
                                      "{\"prompt\": \"1+1=\", \"answer\": \"2\"}\n"
                                      "{\"prompt\": \"1+2=\", \"answer\": \"3\"}\n")
                               .string();
  const auto make = [&](const Options& more) {
    Options options{{"path", path}};
    options.insert(more.begin(), more.end());
    return find_task("jsonl")->make(options);
  };
  const std::string kept = (folder / "episode").string();
  const auto task = make({{"answer", "program"}, {"program", "cat >" + kept + "; echo 0.5"}});
  CHECK_FALSE(task->has_demonstrations());
  const std::string hostile = "$(touch /tmp/x) \"'\n`;\xff";
  const Reward reward = task->reward({"1+1=", "2", "", {}}, hostile, false);
  CHECK(reward.value == 0.5);
  CHECK(reward.format_error);
  const nlohmann::json given = nlohmann::json::parse(folder.read("episode"));
  CHECK(given ==
        nlohmann::json{
            {"prompt", "1+1="}, {"answer", "2"}, {"reply", "$(touch /tmp/x) \"'\n`;\xef\xbf\xbd"}, {"ended", false}});
  CHECK_THROWS_WITH(make({{"answer", "program"}}), Catch::Contains("belong together"));
  CHECK_THROWS_WITH(make({{"program", "echo 1"}}), Catch::Contains("belong together"));
}

}  // namespace
}  // namespace motley::envs
