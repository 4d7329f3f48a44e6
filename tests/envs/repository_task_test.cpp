// The format of repository tasks: what loads, what is refused and where, what the model is shown, and what a check
// finds.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "envs/repository/scrub.h"
#include "envs/repository/task.h"
#include "tests/temporary_folder.h"

using Catch::Matchers::Contains;

namespace motley::envs {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const std::string kBroken = "def add(a, b):\n    return a - b\n";
const std::string kFixed = "def add(a, b):\n    return a + b\n";
const std::string kPatch =
    "--- a/add.py\n+++ b/add.py\n@@ -1,2 +1,2 @@\n def add(a, b):\n-    return a - b\n+    return a + b\n";

/// A task that is in order, in one line.
Json task() {
  return {{"id", "add"},
          {"issue", "add(1, 2) gives -1"},
          {"test", "python3 test_add.py"},
          {"tree", {{"add.py", kBroken}}},
          {"tests", {{"test_add.py", "from add import add\nassert add(1, 2) == 3\n"}}},
          {"patch", kPatch}};
}

RepositoryTask loaded(const Json& json) {
  const TemporaryFolder folder;
  return load_repository_tasks(folder.write("tasks.jsonl", json.dump() + "\n")).at(0);
}

std::string problems(const Json& json) {
  std::string text;
  for (const std::string& problem : inspect_task(loaded(json))) text += problem + "\n";
  return text;
}

}  // namespace

TEST_CASE("a task of one line loads") {
  Json json = task();
  json["remove"] = {"build"};
  json["demonstration"] = {"sed -i 's/a - b/a + b/' add.py"};
  json["held_out"] = true;
  json["limits"] = {{"turns", 5}, {"memory_mib", 64}};
  json["about"] = {{"anything", {1, 2}}};
  const RepositoryTask one = loaded(json);
  CHECK(one.id == "add");
  CHECK_THAT(one.place, Contains("tasks.jsonl:1"));
  CHECK(one.test == "python3 test_add.py");
  CHECK(one.remove == std::vector<std::string>{"build"});
  CHECK(one.demonstration.size() == 1);
  CHECK(one.held_out == true);
  CHECK(one.limits.turns == 5);
  CHECK(one.limits.memory_mib == 64);
  CHECK(one.limits.call_seconds == RepositoryLimits().call_seconds);
  CHECK(visible_tree(one).find("add.py")->content == kBroken);
  CHECK(hidden_tests(one).entries().size() == 1);
  CHECK(reference_patch(one) == kPatch);
  CHECK(inspect_task(one).empty());
}

TEST_CASE("a folder of folders loads: program, tests and fix as files, as trees and as archives") {
  const TemporaryFolder folder;
  for (const char* sub :
       {"set", "set/b-files", "set/b-files/tree", "set/b-files/tests", "set/b-files/fix", "set/a-patch"})
    fs::create_directory(folder / sub);
  const std::string json = "{\"test\": \"python3 test_add.py\"}\n",
                    test = "from add import add\nassert add(1, 2) == 3\n";
  folder.write("set/b-files/task.json", json);
  folder.write("set/b-files/issue.md", "add subtracts\n");
  folder.write("set/b-files/tree/add.py", kBroken);
  folder.write("set/b-files/tests/test_add.py", test);
  folder.write("set/b-files/fix/add.py", kFixed);
  folder.write("set/a-patch/task.json", json);
  folder.write("set/a-patch/issue.md", "add subtracts\n");
  folder.write("set/a-patch/fix.patch", kPatch);
  REQUIRE(std::system(("cd '" + folder.path().string() +
                       "/set' && tar -czf a-patch/tree.tar.gz -C b-files/tree . && "
                       "tar -cf a-patch/tests.tar -C b-files/tests .")
                          .c_str()) == 0);
  const std::vector<RepositoryTask> tasks = load_repository_tasks(folder / "set");
  REQUIRE(tasks.size() == 2);
  CHECK(tasks[0].id == "a-patch");
  CHECK(tasks[1].id == "b-files");
  for (const RepositoryTask& one : tasks) {
    CAPTURE(one.id, inspect_task(one));
    CHECK(inspect_task(one).empty());
    CHECK(one.issue == "add subtracts\n");
    CHECK(visible_tree(one).find("add.py")->content == kBroken);
    CHECK(hidden_tests(one).find("test_add.py")->content == test);
    CHECK(reference_patch(one) == kPatch);
  }
  fs::create_directory(folder / "set/c");
  CHECK_THROWS_WITH(load_repository_tasks(folder / "set"), Contains("set/c: holds no task.json"));
}

TEST_CASE("whatever is wrong with a task is refused with file, line and key") {
  const TemporaryFolder folder;
  const std::string good = task().dump();
  const auto refused = [&](const std::string& line, const std::string& reason) {
    CAPTURE(line);
    const fs::path file = folder.write("tasks.jsonl", good + "\n\n" + line + "\n");
    CHECK_THROWS_AS(load_repository_tasks(file), TaskError);
    CHECK_THROWS_WITH(load_repository_tasks(file), Contains("tasks.jsonl:3: ") && Contains(reason));
  };
  const auto edited = [&](const std::function<void(Json&)>& edit) {
    Json json = task();
    json["id"] = "other";
    edit(json);
    return json.dump();
  };
  refused("{", "not JSON");
  refused("[]", "must be an object, but is array");
  refused(std::string(100000, '['), "not JSON");
  refused("{\"id\": \"\xff\"}", "not JSON");
  refused(good, "the id add is that of");
  for (const char* key : {"id", "issue", "test", "tree", "tests"})
    refused(edited([&](Json& j) { j.erase(key); }), std::string("\"") + key + "\" is missing");
  for (const char* key :
       {"id", "issue", "test", "tree", "tests", "patch", "remove", "demonstration", "held_out", "sets", "limits"})
    refused(edited([&](Json& j) { j[key] = 3; }), std::string("\"") + key + "\" must");
  refused(edited([](Json& j) { j["hiden"] = 1; }), "\"hiden\" is no key of a task; allowed: about, demonstration");
  for (const char* id : {"a/b", "..", ".a", "a b", "\n", "\xc3\xa9"})
    refused(edited([&](Json& j) { j["id"] = id; }), "\"id\"");
  for (const char* set : {"full", "Hard", "a/b", "a b"})
    refused(edited([&](Json& j) { j["sets"] = {set}; }), "\"sets\" must be names of at most 40 characters");
  refused(edited([](Json& j) { j["issue"] = " \n"; }), "\"issue\" is empty");
  refused(edited([](Json& j) { j["test"] = std::string("a\0b", 3); }), "NUL");
  refused(edited([](Json& j) { j["issue"] = std::string((1 << 20) + 1, 'x'); }), "longer than 1048576");
  refused(edited([](Json& j) { j["tree"] = {{"../x", "1"}}; }), "\"tree\" cannot hold path '../x' has the part '..'");
  refused(edited([](Json& j) { j["tests"] = {{"/etc/x", "1"}}; }), "absolute");
  refused(edited([](Json& j) { j["tree"] = {{"a", "1"}, {"a/b", "1"}}; }), "lies below");
  refused(edited([](Json& j) { j["tree"] = {{"a", 1}}; }), "must have text under \"a\"");
  refused(edited([](Json& j) { j["tree"] = "/etc"; }), "outside");
  refused(edited([](Json& j) { j["tree"] = ".."; }), "outside");
  refused(edited([](Json& j) { j["tree"] = "nothing"; }), "does not exist");
  fs::create_symlink("/etc", folder / "link");
  refused(edited([](Json& j) { j["tree"] = "link"; }), "outside");
  refused(edited([](Json& j) { j["patch"] = "hello"; }), "\"patch\" line 1: no unified diff");
  refused(edited([](Json& j) { j["patch"] = "--- a/../x\n+++ b/../x\n@@ -1 +1 @@\n-a\n+b\n"; }), "'..'");
  refused(edited([](Json& j) { j["fix"] = {{"add.py", kFixed}}; }), "two forms of one thing");
  refused(edited([](Json& j) { j["limits"] = {{"turn", 3}}; }), "\"limits\" has no \"turn\"; allowed: turns, ");
  for (const Json& value :
       {Json(0), Json(-1), Json(1.5), Json("3"), Json(1e300), Json(1001), Json(18446744073709551615u)})
    refused(edited([&](Json& j) { j["limits"] = {{"turns", value}}; }), "from 1 to 1000");
  CHECK_THROWS_WITH(load_repository_tasks(folder / "none"), Contains("does not exist"));
  CHECK_THROWS_WITH(load_repository_tasks("/dev/null"), Contains("no regular file"));
  CHECK_THROWS_WITH(load_repository_tasks(folder.write("empty.jsonl", "\n")), Contains("holds no task"));
}

TEST_CASE("patterns match as documented, and in no more than quadratic time") {
  CHECK(matches("*.pyc", "a/b.pyc"));
  CHECK(matches("cache", "a/cache/b"));
  CHECK_FALSE(matches("cache", "a/caches"));
  CHECK(matches("a/*/c", "a/b/c"));
  CHECK_FALSE(matches("a/*", "a/b/c"));
  CHECK_FALSE(matches("b/*", "a/b/c"));
  CHECK(matches("?.py", "x/a.py"));
  CHECK_FALSE(matches("a?b", "a/b"));
  CHECK_FALSE(matches("a/?b", "a//b"));
  CHECK(matches("*a*b*c", "xxaxxbxxabc"));
  CHECK(matches("**", "a"));
  CHECK_FALSE(matches("", "a"));
  std::string pattern;
  for (int i = 0; i < 200; ++i) pattern += "*a";
  CHECK_FALSE(matches(pattern + "b", std::string(1000, 'a')));
}

TEST_CASE("history, caches, backups and what the task lists are gone before the model sees the tree") {
  Json json = task();
  json["remove"] = {"build", "doc/*.html"};
  const std::vector<std::string> kept{"add.py",          ".gitignore", "doc/a.txt",
                                      "doc/deep/a.html", "src/git/x",  "src/a.original"};
  const std::vector<std::string> gone{
      ".git/HEAD",         "sub/.git",    ".hg/x",       "pkg/__pycache__/add.cpython-311.pyc",
      "add.pyc",           "add.py.orig", "add.py~",     ".add.py.swp",
      "a/.svn/entries",    "CVS/Entries", "build/out/x", "doc/a.html",
      ".pytest_cache/v/x", "add.py.rej",  "deep/build/x"};
  for (const auto& path : kept)
    if (path != "add.py") json["tree"][path] = "x";
  for (const auto& path : gone) json["tree"][path] = kFixed;  // a trace, if it stayed
  const RepositoryTask one = loaded(json);
  const WorkTree tree = visible_tree(one);
  for (const auto& path : kept) CHECK(tree.find(path) != nullptr);
  CHECK(tree.entries().size() == kept.size());
  CHECK(inspect_task(one).empty());
  WorkTree all = std::get<WorkTree>(one.tree);
  CHECK(scrub(all, one.remove).size() == gone.size());
}

TEST_CASE("traces of the fix are found wherever they stand") {
  const auto with = [](const std::string& path, const std::string& text) {
    Json json = task();
    json["tree"][path] = text;
    return json;
  };
  CHECK_THAT(problems(with("notes.txt", "x\n# was: return a + b  # once\n")),
             Contains("trace of the fix in notes.txt:2: \"return a + b\""));
  CHECK_THAT(problems(with("return a + b", "x")), Contains("trace of the fix in return a + b:"));
  CHECK(problems(with("notes.txt", "return a  + b\n")).empty());
  Json moved = with("notes.txt", "import math  # as everywhere\n");  // a line that the fix only moves
  moved["tree"]["add.py"] = "x\nimport math\n";
  moved["patch"] = "--- a/add.py\n+++ b/add.py\n@@ -1,2 +1,2 @@\n+import math\n x\n-import math\n";
  CHECK(problems(moved).empty());
  Json twice = task();  // a line that the touched file has elsewhere; behind a # it is a trace there, too
  twice["tree"]["add.py"] = "return a + b\n" + kBroken;
  twice["patch"] =
      "--- a/add.py\n+++ b/add.py\n@@ -2,2 +2,2 @@\n def add(a, b):\n-    return a - b\n+    return a + b\n";
  CHECK(problems(twice).empty());
  twice["tree"]["add.py"] = "# return a + b\n" + kBroken;
  CHECK_THAT(problems(twice), Contains("trace of the fix in add.py:1"));
  Json known = with("notes.txt", "return a + b");
  known["known_lines"] = {"return a + b"};
  CHECK(problems(known).empty());
  std::string many;
  for (int i = 0; i < 10; ++i) many += "return a + b\n";
  CHECK_THAT(problems(with("notes.txt", many)),
             Contains("notes.txt:5") && !Contains("notes.txt:6") && Contains("and 5 further"));
  Json small = task();
  small["tree"]["add.py"] = "x = 1\n";
  small["tree"]["other"] = "x = 2\n";  // too short to tell anything
  small["patch"] = "--- a/add.py\n+++ b/add.py\n@@ -1 +1 @@\n-x = 1\n+x = 2\n";
  CHECK(problems(small).empty());
}

TEST_CASE("fixes that do not fit and hidden tests in the open are found") {
  Json json = task();
  json["tree"]["add.py"] = kFixed;
  CHECK_THAT(problems(json), Contains("fix: path 'add.py' line 2"));
  json = task();
  json["tests"]["add.py"] = "x";
  CHECK_THAT(problems(json), Contains("fix: touches the hidden test add.py"));
  json = task();
  json["tree"]["old_test.py"] = json["tests"]["test_add.py"];
  CHECK_THAT(problems(json), Contains("the hidden test test_add.py stands in the tree as old_test.py"));
  json = task();
  json.erase("patch");
  CHECK(problems(json).empty());
  json["fix"] = {{"add.py", kBroken}};
  CHECK_THAT(problems(json), Contains("fix: changes nothing"));
  json["fix"] = {{"add.py", kFixed}, {"new/file.py", "x\n"}};
  CHECK(problems(json).empty());
  json["fix"] = {{"add.py/x", kFixed}};
  CHECK_THAT(problems(json), Contains("lies below"));
  json["tree"] = {{".git", "x"}};
  CHECK_THAT(problems(json), Contains("nothing is left"));
}

TEST_CASE("docs/repository-tasks.md: its example loads, and it names every pattern and every limit's default") {
  std::ifstream in(std::string(MOTLEY_SOURCE_DIR) + "/docs/repository-tasks.md");
  std::ostringstream text;
  text << in.rdbuf();
  const std::string page = text.str();
  const size_t example = page.find("```json\n") + 8;
  const RepositoryTask one = loaded(Json::parse(page.substr(example, page.find("\n```", example) - example)));
  CHECK(inspect_task(one).empty());
  for (const std::string& pattern : scrubbed_always()) CHECK_THAT(page, Contains("`" + pattern + "`"));
  const RepositoryLimits limits;
  const std::vector<std::pair<std::string, int64_t>> rows{{"turns", limits.turns},
                                                          {"call_seconds", limits.call_seconds},
                                                          {"episode_seconds", limits.episode_seconds},
                                                          {"test_seconds", limits.test_seconds},
                                                          {"memory_mib", limits.memory_mib},
                                                          {"disk_mib", limits.disk_mib},
                                                          {"processes", limits.processes},
                                                          {"output_bytes", limits.output_bytes}};
  for (const auto& [name, value] : rows)
    CHECK_THAT(page, Contains("| `" + name + "` | " + std::to_string(value) + " |"));
}

}  // namespace motley::envs
