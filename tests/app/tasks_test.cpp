// motley tasks: small tasks are made and found in order; what is wrong with a set is told.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tests/app/binary.h"

using Catch::Matchers::Contains;

namespace motley::app {

TEST_CASE("tasks that are generated pass their check, and the same seed gives the same file") {
  const TemporaryFolder folder;
  const Ended made = run_binary(folder, {"tasks", "generate", "a", "--seed", "3", "--count", "20"});
  CAPTURE(made.err);
  REQUIRE(made.code == 0);
  CHECK(made.out == "a/tasks.jsonl: 20 tasks, 5 of them held out\n");
  const Ended again = run_binary(folder, {"tasks", "generate", "deep/b", "--seed", "3", "--count", "20", "--json"});
  REQUIRE(again.code == 0);
  CHECK(nlohmann::json::parse(again.out)["held_out"] == 5);
  CHECK(folder.read("deep/b/tasks.jsonl") == folder.read("a/tasks.jsonl"));
  REQUIRE(run_binary(folder, {"tasks", "generate", "c", "--seed", "4", "--count", "20"}).code == 0);
  CHECK(folder.read("c/tasks.jsonl") != folder.read("a/tasks.jsonl"));
  require_refused(run_binary(folder, {"tasks", "generate", "a"}), "exists already");
  for (const std::string path : {"a", "a/tasks.jsonl"}) {
    const Ended checked = run_binary(folder, {"tasks", "check", path, "--no-run"});
    CAPTURE(checked.err, checked.out);
    CHECK(checked.code == 0);
    CHECK_THAT(checked.out, Contains("20 tasks, 0 with problems; nothing was run"));
  }
}

TEST_CASE("tasks check: exit code 1 and a line for what is wrong with a task, 2 for a set that cannot be read") {
  const TemporaryFolder folder;
  REQUIRE(run_binary(folder, {"tasks", "generate", "a", "--count", "10"}).code == 0);
  std::string lines = folder.read("a/tasks.jsonl");
  const std::string id = "awk-h0";
  const size_t line = lines.rfind('\n', lines.find("\"id\":\"" + id + "\"")) + 1, tree = lines.find("\"tree\":{", line);
  lines.insert(tree + 8, R"("notes":"hm: ","other":"x",)");
  const nlohmann::json task = nlohmann::json::parse(lines.substr(line, lines.find('\n', line) - line));
  const std::string patch = task["patch"];
  const size_t added = patch.rfind("\n+") + 2;
  lines.replace(lines.find("hm: "), 4, "hm: " + patch.substr(added, patch.find('\n', added) - added));
  folder.write("bad.jsonl", lines);
  const Ended checked = run_binary(folder, {"tasks", "check", "bad.jsonl", "--no-run"});
  CAPTURE(checked.out, checked.err);
  CHECK(checked.code == 1);
  CHECK_THAT(checked.out, Contains(id + ": trace of the fix in notes:1: \"") && Contains("10 tasks, 1 with problems"));
  const Ended json = run_binary(folder, {"tasks", "check", "bad.jsonl", "--no-run", "--json"});
  CHECK(json.code == 1);
  CHECK(nlohmann::json::parse(json.out)["problems"].contains(id));
  folder.write("typo.jsonl", "{\"id\": \"x\", \"isue\": \"y\"}\n");
  require_refused(run_binary(folder, {"tasks", "check", "typo.jsonl"}), "typo.jsonl:1: \"isue\" is no key of a task");
  require_refused(run_binary(folder, {"tasks", "check", "nothing"}), "nothing: does not exist");
  require_refused(run_binary(folder, {"tasks", "mend", "a"}), "mend");
  require_refused(run_binary(folder, {"tasks", "generate", "b", "--count", "0"}), "count");
}

TEST_CASE("tasks check runs the tests in sandboxes: untouched tree, fix and demonstration") {
  const TemporaryFolder folder;
  REQUIRE(run_binary(folder, {"tasks", "generate", "a", "--count", "5"}).code == 0);
  const Ended checked = run_binary(folder, {"tasks", "check", "a"});
  CAPTURE(checked.out, checked.err);
  if (checked.err.find("--no-run checks what shows") != std::string::npos) {
    WARN("SKIPPED, this machine makes no sandboxes: " << checked.err);
    CHECK(checked.code == 1);
    return;
  }
  CHECK(checked.code == 0);
  CHECK(checked.out == "5 tasks, 0 with problems\n");
  std::string lines = folder.read("a/tasks.jsonl");
  for (const std::string test : {"sh test.sh", "python3 test.py"})
    for (size_t at = lines.find(test); at != std::string::npos; at = lines.find(test))
      lines.replace(at, test.size(), "true");
  folder.write("true.jsonl", lines);
  const Ended untested = run_binary(folder, {"tasks", "check", "true.jsonl"});
  CHECK(untested.code == 1);
  CHECK_THAT(untested.out,
             Contains("bash-h0: the untouched tree passes its hidden tests") && Contains("5 tasks, 5 with problems"));
}

}  // namespace motley::app
