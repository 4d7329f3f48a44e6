// Scores of episodes on a repository task: what passes, what fails, what is not even tried, and what is an error.
#include <catch2/catch.hpp>
#include <string>

#include "envs/repository/prove.h"
#include "tests/envs/sandbox_here.h"

namespace motley::envs {
namespace {

/// twice.sh doubles its argument; its hidden tests run it as a process of its own and say so at their end.
RepositoryTask task() {
  RepositoryTask task;
  task.id = "twice-1";
  task.place = "test";
  task.issue = "twice.sh 4 prints 16";
  task.test = "test \"$(bash check.sh)\" = passed";
  WorkTree tree, tests;
  tree.add("twice.sh", file("echo $(($1 * $1))\n"));
  tree.add("docs/read me", file("text\n"));
  tree.add("latest", link_to("docs/read me"));
  tests.add("check.sh",
            file("[ \"$(bash twice.sh 4)\" = 8 ] && [ \"$(bash twice.sh 5)\" = 10 ] || exit 1\necho passed\n"));
  task.tree = tree;
  task.tests = tests;
  task.limits.memory_mib = 64;
  task.limits.disk_mib = 4;
  task.limits.test_seconds = 2;
  return task;
}

FileTree fixed() {
  FileTree after = visible_tree(task()).entries();
  after["docs"] = folder();
  after["twice.sh"] = file("echo $(($1 * 2))\n");
  return after;
}

TEST_CASE("a fix passes, the untouched tree fails, and the changes come back as a diff", "[sandbox][score]") {
  SandboxHost* host = sandbox_host();
  if (host == nullptr) return;
  Sandbox episode(*host, sandbox_limits(task().limits));
  episode.put(visible_tree(task()).entries());
  episode.call("sed -i 's/\\* \\$1/* 2/' twice.sh; mkdir -p __pycache__ empty; echo x >__pycache__/x.pyc; sleep 100 &");
  const Score passed = score_episode(*host, task(), episode);
  INFO(passed.reason);
  CHECK(passed.kind == Score::Kind::passed);
  CHECK(passed.reward() == 1.0);
  CHECK(passed.reason.empty());
  CHECK(passed.patch == "--- a/twice.sh\n+++ b/twice.sh\n@@ -1,1 +1,1 @@\n-echo $(($1 * $1))\n+echo $(($1 * 2))\n");
  CHECK(score_patch(*host, task(), passed.patch).kind == Score::Kind::passed);
  const Score untouched = score_patch(*host, task(), "");
  CHECK(untouched.kind == Score::Kind::failed);
  CHECK(untouched.reason == "the tests ended with status 1");
}

TEST_CASE("changes that are not the model's to make score 0 with the reason", "[sandbox][score]") {
  SandboxHost* host = sandbox_host();
  if (host == nullptr) return;
  const auto rejects = [&](const std::string& path, const TreeEntry& entry, const std::string& reason) {
    FileTree after = fixed();
    after[path] = entry;
    const Score score = score_tree(*host, task(), after);
    INFO(path);
    CHECK(score.kind == Score::Kind::rejected);
    CHECK_THAT(score.reason, Catch::Contains(reason));
    CHECK(score.reward() == 0.0);
  };
  rejects("check.sh", file("echo passed\n"), "touch the tests");
  rejects("check.sh/x", file(""), "touch the tests");
  rejects("tests/conftest.py", file(""), "load unasked");
  rejects("a\nb", file(""), "control character");
  rejects("out", link_to("/etc/passwd"), "leaves the tree");
  rejects("out", link_to("docs/../../x"), "leaves the tree");
  RepositoryTask runner = task();
  runner.test = "./run && bash check.sh";
  FileTree after = fixed();
  after["run"] = executable("exit 0");
  CHECK_THAT(score_tree(*host, runner, after).reason, Catch::Contains("what the test command runs, 'run'"));
  // Diffs of others.
  for (const std::string path : {"../../etc/passwd", "/etc/passwd", "check.sh", "docs/../check.sh"}) {
    const Score score = score_patch(*host, task(), "--- /dev/null\n+++ b/" + path + "\n@@ -0,0 +1 @@\n+x\n");
    INFO(path);
    CHECK(score.kind == Score::Kind::rejected);
  }
  CHECK(score_patch(*host, task(), "--- a/twice.sh\n+++ b/twice.sh\n@@ -1 +1 @@\n-other\n+x\n").kind ==
        Score::Kind::rejected);
  CHECK(score_patch(*host, task(), "no diff").kind == Score::Kind::rejected);
}

TEST_CASE("what forges a result from inside fails: it is the kernel's status, and the test's last word",
          "[sandbox][score]") {
  SandboxHost* host = sandbox_host();
  if (host == nullptr) return;
  const auto score = [&](const std::string& program) {
    FileTree after = fixed();
    after["twice.sh"] = file(program);
    return score_tree(*host, task(), after);
  };
  CHECK(score("kill -9 $PPID; exit 0\n").kind == Score::Kind::failed);
  CHECK(score("kill -9 -1; exit 0\n").kind == Score::Kind::failed);
  CHECK(score("for f in /proc/[0-9]*/fd/*; do printf '0\\0' >$f; done 2>/dev/null; exit 0\n").kind ==
        Score::Kind::failed);
  CHECK(score("echo 'echo passed' >check.sh; echo 1 >reward; echo passed\n").kind == Score::Kind::failed);
  const Score hangs = score("sleep 1000\n");
  CHECK(hangs.kind == Score::Kind::failed);
  CHECK(hangs.reason == "the tests did not end within 2 s");
}

TEST_CASE("removed files stay removed, and a folder in the place of a file is one", "[sandbox][score]") {
  SandboxHost* host = sandbox_host();
  if (host == nullptr) return;
  RepositoryTask other = task();
  std::get<WorkTree>(other.tests).add("layout.sh", file("! test -e docs && test -f latest/x && ! test -L latest\n"));
  other.test = "bash layout.sh && bash check.sh";
  FileTree after = fixed();
  after.erase("docs");
  after.erase("docs/read me");
  after["latest"] = folder();
  after["latest/x"] = file(std::string("\0\1", 2));
  const Score score = score_tree(*host, other, after);
  INFO(score.reason << score.output);
  CHECK(score.kind == Score::Kind::passed);
  CHECK(score.patch.empty());
}

TEST_CASE("what is nobody's fault but the sandbox's or the task's is an error, not a 0", "[sandbox][score]") {
  SandboxHost* host = sandbox_host();
  if (host == nullptr) return;
  Sandbox episode(*host, sandbox_limits(task().limits));
  episode.destroy();
  const Score lost = score_episode(*host, task(), episode);
  CHECK(lost.kind == Score::Kind::error);
  CHECK_THAT(lost.reason, Catch::Contains("has ended"));
  RepositoryTask missing = task();
  missing.tests = std::filesystem::path("/nowhere/at all");
  CHECK(score_tree(*host, missing, fixed()).kind == Score::Kind::error);
  // But an episode that took too long, and a tree that cannot be taken, are the episode's own doing.
  SandboxLimits short_time = sandbox_limits(task().limits);
  short_time.episode_seconds = 0.1;
  Sandbox slow(*host, short_time);
  CHECK_THROWS_AS(slow.call("sleep 10"), EpisodeOver);
  CHECK(score_episode(*host, task(), slow).kind == Score::Kind::failed);
  Sandbox deep(*host, sandbox_limits(task().limits));
  deep.call("for i in {1..70}; do mkdir d; cd d; done");
  CHECK(score_episode(*host, task(), deep).kind == Score::Kind::rejected);
}

TEST_CASE("a task is proved by running it: untouched it fails, its fix and its demonstration pass",
          "[sandbox][score]") {
  SandboxHost* host = sandbox_host();
  if (host == nullptr) return;
  RepositoryTask good = task();
  WorkTree fix;
  fix.add("twice.sh", file("echo $(($1 * 2))\n"));
  good.fix = TreeSource(fix);
  good.demonstration = {"cat twice.sh", "sed -i 's/\\* \\$1/* 2/' twice.sh"};
  CHECK(prove_task(*host, good).empty());
  RepositoryTask easy = good;
  easy.test = "true";
  CHECK(prove_task(*host, easy) == std::vector<std::string>{"the untouched tree passes its hidden tests"});
  RepositoryTask bad = good;
  bad.test = "echo wrong; exit 3";
  CHECK(prove_task(*host, bad) ==
        std::vector<std::string>{"the fix does not pass: the tests ended with status 3: wrong",
                                 "the demonstration does not pass: the tests ended with status 3: wrong"});
  RepositoryTask missing = good;
  missing.tests = std::filesystem::path("/nowhere/at all");
  const std::vector<std::string> problems = prove_task(*host, missing);
  REQUIRE(problems.size() == 1);
  CHECK_THAT(problems.at(0), Catch::Contains("cannot be scored"));
}

}  // namespace
}  // namespace motley::envs
