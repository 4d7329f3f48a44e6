// Agents on repository tasks in real sandboxes: whole episodes, demonstrations, and what proving a task finds.
#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>

#include "envs/repository/generate.h"
#include "envs/repository/prove.h"
#include "envs/repository/session.h"
#include "tests/envs/sandbox_here.h"

using Catch::Matchers::Contains;

namespace motley::envs {
namespace {

RepositoryTask task() {
  RepositoryTask task = generate_task("bash", 0, 0, false);
  WorkTree tree, tests;
  tree.add("sum.sh", file("echo $(($1 - $2))\n"));
  tests.add("test.sh", file("[ \"$(bash sum.sh 4 3)\" = 7 ]\n"));
  task.issue = "sum.sh 4 3 gives 1, not 7";
  task.tree = tree;
  task.tests = tests;
  task.fix = std::string("--- a/sum.sh\n+++ b/sum.sh\n@@ -1 +1 @@\n-echo $(($1 - $2))\n+echo $(($1 + $2))\n");
  task.demonstration = {"cat sum.sh", "sed -i s/-/+/ sum.sh"};
  return task;
}

struct Agent {
  Tokenizer tokenizer{task_symbols(), true};
  ChatFormat format{"compact", tokenizer};
};

struct Played {
  AgentEpisode episode;
  Score score;
};
/// The agent says these replies in turn, each with its end token.
Played played(SandboxHost& host, const Agent& agent, const RepositoryTask& task,
              const std::vector<std::string>& replies, const AgentLimits& limits = {}) {
  RepositoryEpisode episode(host, task, agent.format, limits, "");
  std::optional<int64_t> most = episode.begin();
  for (size_t turn = 0; most; ++turn) {
    Tokens reply = agent.tokenizer.encode(replies.at(turn));
    reply.push_back(agent.tokenizer.eos());
    const Tokens prompt = episode.episode().context();
    most = episode.replied(prompt, reply);
  }
  const Score score = episode.score();
  return {episode.episode(), score};
}

}  // namespace

TEST_CASE("whole episodes in real sandboxes: mended, not mended, nonsense, out of turns") {
  SandboxHost* host = sandbox_host();
  if (!host) return;
  const Agent agent;
  const RepositoryTask one = task();
  const auto play = [&](const std::vector<std::string>& replies, const AgentLimits& limits = {}) {
    return played(*host, agent, one, replies, limits);
  };
  const Played right = play({"$cat sum.sh", "$x=+; sed -i s/-/$x/ sum.sh", "$cat sum.sh; false", "."});
  CAPTURE(right.score.reason);
  CHECK(right.episode.end() == EpisodeEnd::submitted);
  CHECK(right.score.kind == Score::Kind::passed);
  CHECK(right.episode.turns().size() == 4);
  CHECK(agent.tokenizer.decode(right.episode.context()) ==
        "sum.sh 4 3 gives 1, not 7$cat sum.shecho $(($1 - $2))$x=+; sed -i s/-/$x/ sum.sh$cat sum.sh; false"
        "echo $(($1 + $2))\n[1].");
  CHECK(std::count(right.episode.drawn().begin(), right.episode.drawn().end(), 1) ==
        std::accumulate(right.episode.turns().begin(), right.episode.turns().end(), int64_t{0}));
  const Played wrong = play({"$ls -a", "."});
  CHECK(wrong.score.kind == Score::Kind::failed);
  CHECK_THAT(agent.tokenizer.decode(wrong.episode.context()), !Contains("test.sh"));  // hidden
  const Played nonsense = play({"a", "b", "c"});
  CHECK(nonsense.episode.end() == EpisodeEnd::format_errors);
  CHECK(nonsense.episode.format_errors() == 3);
  CHECK(nonsense.score.kind == Score::Kind::failed);
  // A partial answer counts: the tree is scored as it stands when the turns are used up.
  const Played partial = play({"$sed -i s/-/+/ sum.sh"}, {.turns = 1});
  CHECK(partial.episode.end() == EpisodeEnd::turn_limit);
  CHECK(partial.score.kind == Score::Kind::passed);
  const Played cheat = play({"$echo true >test.sh", "."});
  CHECK(cheat.score.kind == Score::Kind::rejected);
  const Played slow = play({"$sleep 60"}, {.seconds = 0.2});
  CHECK(slow.episode.end() == EpisodeEnd::time_limit);
  CHECK(slow.score.kind == Score::Kind::failed);
}

TEST_CASE("a task's demonstration becomes an example only if it passes") {
  SandboxHost* host = sandbox_host();
  if (!host) return;
  const Agent agent;
  RepositoryTask one = task();
  const Transcript transcript = demonstrate_task(*host, one, agent.format, {}, "");
  CHECK(agent.tokenizer.decode(transcript.tokens) ==
        "sum.sh 4 3 gives 1, not 7$cat sum.shecho $(($1 - $2))$sed -i s/-/+/ sum.sh.");
  const Transcript hasty = demonstrate_task(*host, one, agent.format, {}, "", true);
  CHECK(agent.tokenizer.decode(hasty.tokens) == "sum.sh 4 3 gives 1, not 7$cat sum.shecho $(($1 - $2)).");
  one.demonstration = {"cat sum.sh"};
  CHECK_THROWS_WITH(demonstrate_task(*host, one, agent.format, {}, ""), Contains("does not pass"));
  one.demonstration = {};
  CHECK_THROWS_WITH(demonstrate_task(*host, one, agent.format, {}, ""), Contains("no demonstration"));
  one = task();
  CHECK_THROWS_WITH(demonstrate_task(*host, one, agent.format, {.turns = 2}, ""), Contains("ends by turn_limit"));
}

TEST_CASE("a task of every family is proved by running it") {
  SandboxHost* host = sandbox_host();
  if (!host) return;
  for (const std::string& family : task_families()) {
    const RepositoryTask made = generate_task(family, 5, 0, false);
    CAPTURE(made.issue);
    CHECK(prove_task(*host, made).empty());
  }
}

}  // namespace motley::envs
