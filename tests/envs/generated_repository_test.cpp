// Generated repository tasks: different, apart, small, and right when they are really run.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <set>

#include "envs/chat/format.h"
#include "envs/held_out.h"
#include "envs/repository/generate.h"
#include "tests/temporary_folder.h"

using Catch::Matchers::Contains;

namespace motley::envs {
namespace {

const std::vector<RepositoryTask>& five_hundred() {
  static const std::vector<RepositoryTask> tasks = generate_tasks(0, 500);
  return tasks;
}

struct Tried {
  bool passed = false;
  WorkTree tree;  // after the commands
};
/// A tree after some commands, and whether the hidden tests pass on it; trusted, and so without a sandbox.
Tried tried(const RepositoryTask& task, const std::vector<std::string>& commands) {
  const TemporaryFolder folder;
  write_tree(visible_tree(task), folder.path());
  std::string script = "cd '" + folder.path().string() + "'";
  for (const std::string& command : commands) script += " && { " + command + " ; } >/dev/null 2>&1";
  REQUIRE(std::system(script.c_str()) == 0);
  Tried result;
  const WorkTree found = read_folder(folder.path());
  for (const auto& [path, entry] : found.entries())
    if (entry.kind == TreeEntry::Kind::file) result.tree.add(path, entry);
  write_tree(hidden_tests(task), folder.path());
  result.passed =
      std::system(("cd '" + folder.path().string() + "' && " + task.test + " >/dev/null 2>&1").c_str()) == 0;
  return result;
}

}  // namespace

TEST_CASE("generated tasks are different, in order, and the same from the same seed") {
  const auto& tasks = five_hundred();
  REQUIRE(tasks.size() == 500);
  std::set<std::string> ids, texts;
  std::map<std::string, int> families;
  int held_out = 0;
  for (const RepositoryTask& task : tasks) {
    CAPTURE(task.id, task.issue, inspect_task(task));
    CHECK(inspect_task(task).empty());
    CHECK_FALSE(task.demonstration.empty());
    ids.insert(task.id);
    texts.insert(task.issue + reference_patch(task));
    ++families[task.id.substr(0, task.id.find('-'))];
    held_out += *task.held_out;
  }
  CHECK(ids.size() == 500);
  CHECK(texts.size() >= 490);  // two issues may share a fix
  CHECK(families.size() == 5);
  for (const std::string& family : task_families()) CHECK(families[family] == 100);
  CHECK(held_out == 50);
  CHECK(generate_task("lines", 0, 3, false).issue == generate_task("lines", 0, 3, false).issue);
  CHECK(generate_task("lines", 0, 3, false).issue != generate_task("lines", 1, 3, false).issue);
  CHECK_THROWS_WITH(generate_task("perl", 0, 0, false), Contains("no family perl"));
}

TEST_CASE("held-out repository tasks never occur in training, whatever the seed") {
  for (const std::string& family : task_families()) {
    for (uint64_t index = 0; index < 40; ++index) {
      for (const bool held_out : {false, true}) {
        const RepositoryTask task = generate_task(family, index % 3, index, held_out);
        std::string identity = task.issue;
        const WorkTree tree = visible_tree(task);
        for (const auto& [path, entry] : tree.entries()) identity += "\n" + path + "\n" + entry.content;
        CHECK(is_held_out(identity) == held_out);
        CHECK(task.held_out == held_out);
      }
    }
  }
}

TEST_CASE("the untouched tree fails its hidden tests; the demonstration passes them, and does what the fix does") {
  std::map<std::string, std::set<std::string>> kinds;  // by the beginning of the issue or of the program
  for (const RepositoryTask& task : five_hundred()) {
    const std::string family = task.id.substr(0, task.id.find('-'));
    const WorkTree tree = visible_tree(task);
    // Of each family the first of some kinds: two or three processes for each.
    const std::string kind = family == "files" || family == "lines"
                                 ? task.issue.substr(0, 3)
                                 : tree.entries().begin()->second.content.substr(0, 22);
    if (kinds[family].size() >= 4 || !kinds[family].insert(kind).second) continue;
    CAPTURE(task.id, task.issue, task.demonstration);
    CHECK_FALSE(tried(task, {}).passed);
    const Tried done = tried(task, task.demonstration);
    CHECK(done.passed);
    WorkTree fixed = tree;
    apply_patch(parse_patch(reference_patch(task)), fixed);
    CHECK(done.tree == fixed);
  }
  for (const std::string& family : task_families()) CHECK(kinds[family].size() == 4);
}

TEST_CASE("a generated task comes back from its line") {
  const TemporaryFolder folder;
  std::string lines;
  for (uint64_t i = 0; i < 10; ++i) lines += to_json_line(five_hundred()[i]);
  folder.write("tasks.jsonl", lines);
  const auto loaded = load_repository_tasks(folder.path());
  REQUIRE(loaded.size() == 10);
  std::map<std::string, const RepositoryTask*> by_id;
  for (uint64_t i = 0; i < 10; ++i) by_id[five_hundred()[i].id] = &five_hundred()[i];
  for (const RepositoryTask& task : loaded) {
    const RepositoryTask& wanted = *by_id.at(task.id);
    CHECK(task.issue == wanted.issue);
    CHECK(task.test == wanted.test);
    CHECK(visible_tree(task) == visible_tree(wanted));
    CHECK(hidden_tests(task) == hidden_tests(wanted));
    CHECK(reference_patch(task) == reference_patch(wanted));
    CHECK(task.demonstration == wanted.demonstration);
    CHECK(task.held_out == wanted.held_out);
    CHECK(task.sets == wanted.sets);
    CHECK(task.sets.front() == task.id.substr(0, task.id.find('-')));
    CHECK((task.sets.back() == "hard") == (task.demonstration.size() > 1));
    CHECK(task.limits == wanted.limits);
  }
}

TEST_CASE("a perfect episode of a generated task takes few tokens") {
  const Tokenizer tokenizer(task_symbols(), true);
  CHECK(tokenizer.size() < 400);
  const ChatFormat format("compact", tokenizer);
  size_t most = 0, all = 0;
  for (const RepositoryTask& task : five_hundred()) {
    size_t tokens = format.begin("", task.issue).size();
    for (const std::string& command : task.demonstration) {
      tokens += format.call({ToolCall::Tool::bash, command}).size();
      const WorkTree tree = visible_tree(task);
      tokens += command.starts_with("cat ") ? format.observe(true, {tree.find(command.substr(4))->content}).size() : 1;
    }
    tokens += format.call({ToolCall::Tool::submit, ""}).size();
    most = std::max(most, tokens);
    all += tokens;
  }
  CAPTURE(most, all / 500);
  CHECK(most <= 72);
  CHECK(all / 500 <= 40);
}

}  // namespace motley::envs
