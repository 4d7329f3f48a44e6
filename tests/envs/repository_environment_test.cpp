// The repository env: which tasks it has, and its episodes as a run sees them.
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <fstream>
#include <set>
#include <thread>

#include "envs/interaction.h"
#include "envs/repository/generate.h"
#include "tests/envs/sandbox_here.h"
#include "tests/temporary_folder.h"

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

namespace motley::envs {
namespace {

std::unique_ptr<Task> make(const Options& options) { return find_task("repository")->make(options); }

constexpr InteractionLimits kRoom{.tokens = 400, .reply_tokens = 100};

/// One task of a file; `extra` is JSON that begins with a comma.
std::string line(const std::string& id, const std::string& extra = "") {
  return R"({"id": ")" + id + R"(", "issue": "empty sum.sh", "test": "sh test.sh", "tree": {"sum.sh": "echo"}, )" +
         R"("tests": {"test.sh": "! [ -s sum.sh ]"})" + extra + "}\n";
}

struct File {
  TemporaryFolder folder;
  std::string path = folder.path() / "tasks.jsonl";
  explicit File(const std::string& text) { std::ofstream(path) << text; }
  std::unique_ptr<Task> task(Options options = {}) const {
    options["path"] = path;
    return make(options);
  }
};

std::set<std::string> ids(const Task& task, bool held_out) {
  std::set<std::string> all;
  for (uint64_t i = 0; i < task.epoch_size(held_out); ++i) all.insert(task.problem(0, i, held_out).answer);
  return all;
}

struct Played {
  std::string text;
  InteractionOutcome outcome;
};
Played play(Interaction& episode, const Tokenizer& tokenizer, const std::vector<std::string>& replies) {
  std::optional<int64_t> most = episode.begin();
  for (size_t turn = 0; most; ++turn) {
    std::vector<int32_t> reply = tokenizer.encode(replies.at(turn));
    reply.push_back(tokenizer.eos());
    const std::vector<int32_t> prompt = episode.context();
    most = episode.replied(prompt, reply);
  }
  return {tokenizer.decode(episode.context()), episode.outcome()};
}

}  // namespace

TEST_CASE("generated repository tasks: so many, of the families that are named, a tenth held out") {
  const auto task = make({{"count", "60"}, {"families", "bash, awk"}});
  CHECK(task->epoch_size(false) == 54);
  CHECK(task->epoch_size(true) == 6);
  const std::set<std::string> trained = ids(*task, false), held_out = ids(*task, true);
  CHECK(trained.size() == 54);
  for (const std::string& id : held_out) CHECK_FALSE(trained.contains(id));
  for (const std::string& id : trained) CHECK((id.starts_with("bash-") || id.starts_with("awk-")));
  const Problem first = task->problem(0, 0, false);
  CHECK(first.prompt == generate_task("bash", 1, 0, false).issue);
  CHECK(make({{"count", "60"}, {"families", "bash"}, {"task_seed", "2"}})->problem(0, 0, false).prompt != first.prompt);
  CHECK(task->symbols() == task_symbols());
  CHECK(task->any_bytes());
  CHECK(task->markers().empty());
  CHECK_FALSE(make({{"count", "10"}, {"format", "chatml"}})->markers().empty());
  CHECK(task->interacts());
  CHECK(task->has_demonstrations());
  CHECK_THROWS_WITH(make({{"families", "bash,perl"}}), Contains("files, lines, bash, awk, python"));
  CHECK_THROWS_WITH(make({{"families", ""}}), Contains("option families"));
  CHECK_THROWS_WITH(make({{"path", "/no/such/place"}}), Contains("/no/such/place: does not exist"));
}

TEST_CASE("tasks of a file: held out by what they say, else by their id, and both sets have some") {
  const File few(line("a") + line("b") + line("c"));
  const auto task = few.task();
  CHECK(*task->epoch_size(false) + *task->epoch_size(true) == 3);
  CHECK(task->epoch_size(true) >= 1);
  CHECK(task->symbols().empty());
  CHECK_FALSE(task->has_demonstrations());
  const File said(line("a", R"(, "held_out": true)") + line("b", R"(, "held_out": false)"));
  CHECK(ids(*said.task(), true) == std::set<std::string>{"a"});
  const File named(line("a", R"(, "held_out": true, "sets": ["hard"])") +
                   line("b", R"(, "held_out": false, "sets": ["hard"])") +
                   line("c", R"(, "held_out": true, "sets": ["new", "hard"])") + line("d", R"(, "held_out": true)"));
  const auto sets = named.task()->held_out_sets();
  REQUIRE(sets.size() == 2);
  CHECK(sets.at("hard").size() == 2);  // in training there are no sets
  CHECK(named.task()->problem(0, sets.at("new").at(0), true).answer == "c");
  // A benchmark is held out whole.
  CHECK(File(line("a", R"(, "held_out": true)")).task()->epoch_size(false) == 0);
  CHECK_THROWS_WITH(File(line("a", R"(, "held_out": false)") + line("b", R"(, "held_out": false)")).task(),
                    Contains("none of its tasks is held out"));
}

TEST_CASE("an interaction with a repository task: its tokens, its reward, how it ended") {
  if (!sandbox_host()) return;
  const File tasks(line("a", R"(, "held_out": true)") + line("b"));
  const auto task = tasks.task({{"turns", "3"}});
  CHECK_NOTHROW(task->require());
  const Tokenizer tokenizer({}, true);
  const Problem problem = task->problem(0, 0, true);
  const auto played = [&](const std::vector<std::string>& replies) {
    return play(*task->interact(problem, tokenizer, kRoom), tokenizer, replies);
  };
  const Played right = played({"$cat sum.sh", "$>sum.sh", "."});
  CHECK(right.text == "empty sum.sh$cat sum.shecho$>sum.sh.");
  CHECK(right.outcome.reward.value == 1.0);
  CHECK(right.outcome.reward.parts == std::map<std::string, double>{{"passed", 1.0}});
  CHECK(right.outcome.end == "submitted");
  CHECK_FALSE(right.outcome.truncated);
  CHECK(right.outcome.failure.empty());
  const Played wrong = played({"cat", "$ls", "$pwd"});
  CHECK(wrong.text == "empty sum.shcat?$lssum.sh$pwd");
  CHECK(wrong.outcome.reward.value == 0.0);
  CHECK(wrong.outcome.reward.format_error);
  CHECK(wrong.outcome.format_errors == 1);
  CHECK(wrong.outcome.end == "turn_limit");
  CHECK(wrong.outcome.truncated);
  CHECK(wrong.outcome.failure.empty());
  const Played idle = played({"."});
  CHECK(idle.outcome.reward.value == 0.0);
  CHECK(idle.outcome.end == "submitted");
}

TEST_CASE("what a task or the model's room makes impossible is a failure, not a reward") {
  if (!sandbox_host()) return;
  const Tokenizer tokenizer({}, true);
  const TemporaryFolder folder;
  for (const std::string name : {"a", "b"})
    for (const std::string part : {"tree", "tests"}) {
      std::filesystem::create_directories(folder.path() / name / part);
      std::ofstream(folder.path() / name / part / (part + ".sh")) << "exit 1";
      std::ofstream(folder.path() / name / "task.json") << R"({"issue": "none", "test": "sh tests.sh"})";
    }
  const auto task = make({{"path", folder.path()}});
  const Problem problem = task->problem(0, 0, true);
  for (const char* part : {"tests", "tree"}) {  // gone after loading
    std::filesystem::remove_all(folder.path() / problem.answer / part);
    const Played lost = play(*task->interact(problem, tokenizer, kRoom), tokenizer, {"$ls", "."});
    CAPTURE(part);
    CHECK_THAT(lost.outcome.failure, Contains(part));
    CHECK(lost.outcome.end == (std::string(part) == "tree" ? "failed" : "submitted"));
  }
  const auto cramped = task->interact(problem, tokenizer, {.tokens = 4, .reply_tokens = 4});
  CHECK_FALSE(cramped->begin());
  CHECK_THAT(cramped->outcome().failure, Contains("leaves no room for a reply"));
}

TEST_CASE("the time limit of an episode is that of its commands, however long replies take") {
  if (!sandbox_host()) return;
  const File tasks(line("a", R"(, "held_out": true, "limits": {"episode_seconds": 1})") + line("b"));
  const auto task = tasks.task();
  const Tokenizer tokenizer({}, true);
  const auto episode = task->interact(task->problem(0, 0, true), tokenizer, kRoom);
  const auto say = [&](const std::string& text) {
    std::vector<int32_t> reply = tokenizer.encode(text);
    reply.push_back(tokenizer.eos());
    const std::vector<int32_t> prompt = episode->context();
    return episode->replied(prompt, reply);
  };
  REQUIRE(episode->begin());
  REQUIRE(say("$x=sum"));
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  REQUIRE(say("$>$x.sh"));  // in the same shell
  CHECK_FALSE(say("."));
  CHECK(episode->outcome().reward.value == 1.0);
}

TEST_CASE("demonstrations of repository tasks are what the episode reads and writes") {
  if (!sandbox_host()) return;
  const auto task = make({{"count", "20"}, {"families", "bash"}});
  std::vector<std::string> symbols = task->symbols();
  const Tokenizer tokenizer(symbols, true);
  const Problem problem = task->problem(0, 0, false);
  const InteractionExample example = task->demonstrate(problem, tokenizer, kRoom);
  const std::string text = tokenizer.decode(example.tokens);
  CHECK_THAT(text, StartsWith(problem.prompt + "$"));
  CHECK(text.back() == '.');
  REQUIRE(example.drawn.size() == example.tokens.size());
  CHECK(example.drawn.front() == 0);
  CHECK(example.drawn.back() == 1);
  CHECK_THROWS_AS(task->demonstrate(problem, tokenizer, {.tokens = 30, .reply_tokens = 100}), TaskError);
}

TEST_CASE("a share of the demonstrations is hasty, and which ones is the task's own") {
  if (!sandbox_host()) return;
  const Tokenizer tokenizer(task_symbols(), true);
  const auto demonstrated = [&](const std::string& hasty) {
    const auto task = make({{"count", "20"}, {"families", "files"}, {"hasty", hasty}});
    std::vector<std::string> texts;
    for (uint64_t i = 0; i < 6; ++i)
      texts.push_back(tokenizer.decode(task->demonstrate(task->problem(0, i, false), tokenizer, kRoom).tokens));
    return texts;
  };
  const auto some = demonstrated("0.5"), all = demonstrated("1");
  int hasty = 0;
  for (size_t i = 0; i < 6; ++i) {
    CHECK(all[i] == some[i].substr(0, all[i].size() - 1) + ".");
    hasty += some[i] == all[i] ? 1 : 0;
  }
  CHECK(hasty > 0);
  CHECK(hasty < 6);
}

}  // namespace motley::envs
