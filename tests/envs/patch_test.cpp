// Unified diffs: reading, applying exactly, making; and what is refused.
#include "envs/repository/patch.h"

#include <catch2/catch.hpp>
#include <cstdlib>

#include "kernels/philox.h"
#include "tests/temporary_folder.h"

using Catch::Matchers::Contains;

namespace motley::envs {
namespace {

WorkTree tree_of(const std::map<std::string, std::string>& files) {
  WorkTree tree;
  for (const auto& [path, text] : files) tree.add(path, {TreeEntry::Kind::file, false, text});
  return tree;
}
WorkTree patched(WorkTree tree, const std::string& text) {
  apply_patch(parse_patch(text), tree);
  return tree;
}
const std::string kHead = "--- a/f\n+++ b/f\n";

}  // namespace

TEST_CASE("a patch as git writes it changes, makes and removes files") {
  const std::string text =
      "From: someone\n\ndiff --git a/d/f b/d/f\nindex 1..2 100644\n--- a/d/f\t2020-01-01\n+++ b/d/f\n@@ -1,3 +1,3 @@ "
      "def f\n"
      " one\n-two\n+zwei\n three\n@@ -5 +5,2 @@\n five\n+six\n"
      "diff --git a/new b/new\nnew file mode 100644\n--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+hello\n"
      "\\ No newline at end of file\n"
      "diff --git a/old b/old\ndeleted file mode 100644\n--- a/old\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-bye\n-\n";
  const WorkTree before = tree_of({{"d/f", "one\ntwo\nthree\nfour\nfive\n"}, {"old", "bye\n\n"}, {"other", "x"}});
  CHECK(patched(before, text) ==
        tree_of({{"d/f", "one\nzwei\nthree\nfour\nfive\nsix\n"}, {"new", "hello"}, {"other", "x"}}));
  CHECK(touched_paths(parse_patch(text)) == std::vector<std::string>{"d/f", "new", "old"});
}

TEST_CASE("a patch applies exactly or not at all") {
  const WorkTree tree = tree_of({{"f", "a\nb\nc\n"}, {"end", "a\nb"}});
  CHECK(patched(tree, kHead + "@@ -2,0 +3 @@\n+x\n").find("f")->content == "a\nb\nx\nc\n");
  CHECK(patched(tree, kHead + "@@ -0,0 +1 @@\n+x\n").find("f")->content == "x\na\nb\nc\n");
  CHECK(patched(tree, kHead + "@@ -1,2 +1,1 @@\n a\n-b\n").find("f")->content == "a\nc\n");
  const auto fails = [&](const std::string& text, const std::string& reason) {
    CHECK_THROWS_WITH(patched(tree, text), Contains(reason));
  };
  fails(kHead + "@@ -1,1 +1,1 @@\n-b\n+x\n", "line 1: the file does not hold the line 'b'");
  fails(kHead + "@@ -3,2 +3,1 @@\n c\n-d\n", "line 4: the file does not hold the line 'd'");
  fails(kHead + "@@ -9,1 +9,1 @@\n-b\n+x\n", "no place");
  fails(kHead + "@@ -2,1 +2,1 @@\n-b\n+x\n@@ -1,1 +1,1 @@\n-a\n+y\n", "no place");
  fails(kHead + "@@ -3 +3 @@\n-c\n\\ No newline at end of file\n+d\n", "does not hold the line 'c'");
  fails(kHead + "@@ -1 +1,2 @@\n+x\n\\ No newline at end of file\n a\n", "without a line end");
  fails("--- a/g\n+++ b/g\n@@ -1 +1 @@\n-a\n+b\n", "there is no such file");
  fails("--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+b\n", "exists already");
  fails("--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n", "lines are left");
  fails("--- /dev/null\n+++ b/f/g\n@@ -0,0 +1 @@\n+b\n", "lies below");
}

TEST_CASE("what is no patch of text files inside the tree is refused with its line") {
  const auto refused = [](const std::string& text, const std::string& reason) {
    CAPTURE(text);
    CHECK_THROWS_AS(parse_patch(text), TaskError);
    CHECK_THROWS_WITH(parse_patch(text), Contains(reason));
  };
  refused("", "no unified diff");
  refused("hello\n", "no unified diff");
  refused("--- a/../x\n+++ b/../x\n@@ -1 +1 @@\n-a\n+b\n", "line 1: path '../x' has the part '..'");
  refused("--- a//etc/x\n+++ b//etc/x\n@@ -1 +1 @@\n-a\n+b\n", "absolute");
  refused("--- f\n+++ f\n@@ -1 +1 @@\n-a\n+b\n", "without its first part");
  refused("--- \"a/x\\n\"\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n", "quoted");
  refused("--- a/x\n+++ b/y\n@@ -1 +1 @@\n-a\n+b\n", "renames");
  refused("--- /dev/null\n+++ /dev/null\n@@ -1 +1 @@\n-a\n+b\n", "/dev/null");
  refused("--- /dev/null\n+++ b/y\n@@ -1 +1 @@\n-a\n+b\n", "lines in /dev/null");
  refused(kHead, "without hunks");
  refused(kHead + "@@ -1,2 +1 @@\n-a\n", "ends early");
  refused(kHead + "@@ -1 +1 @@\n-a\n-b\n", "no room");
  refused(kHead + "@@ -1 +1 @@\n?a\n", "no room");
  refused(kHead + "@@ -x +1 @@\n", "wanted @@");
  refused(kHead + "@@ -0,2 +1 @@\n", "count from 1");
  refused(kHead + "@@ -1,99999999999999999999 +1 @@\n", "wanted @@");
  refused("@@ -1 +1 @@\n-a\n+b\n", "without the ---");
  refused("Binary files a/x and b/x differ\n", "other than to the lines");
  refused("rename from x\n", "other than to the lines");
  refused("old mode 100644\n", "other than to the lines");
}

TEST_CASE("make_patch and apply_patch are inverse, and patch(1) agrees") {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    kernels::RandomStream random({seed, kernels::Purpose::data, 0, 0});
    const auto text = [&] {
      std::string out;
      for (uint64_t i = random.below(8); i > 0; --i)
        out += std::string(1, static_cast<char>('a' + random.below(3))) + "\n";
      if (!out.empty() && random.below(4) == 0) out.pop_back();
      return out;
    };
    WorkTree before = tree_of({{"same", "x\n"}}), after = before;
    for (const char* path : {"f", "d/g", "h"}) {
      std::string old = text(), now = text();
      if (random.below(4) == 0) now = old;
      if (old.empty() != now.empty() && random.below(2) == 0) old = now = "k\n";
      if (!old.empty() || !now.empty()) {
        if (!old.empty()) before.add(path, {TreeEntry::Kind::file, false, old});
        if (!now.empty()) after.add(path, {TreeEntry::Kind::file, false, now});
      }
    }
    const std::string patch = make_patch(before, after);
    CAPTURE(seed, patch);
    CHECK(patch.empty() == (before == after));
    if (patch.empty()) continue;
    CHECK(patched(before, patch) == after);
    if (seed >= 8 || std::system("command -v patch >/dev/null") != 0) continue;
    const TemporaryFolder folder;
    write_tree(before, folder.path());
    const TemporaryFolder beside;
    beside.write("p", patch);
    const std::string command =
        "patch -s -p1 -E -d '" + folder.path().string() + "' <'" + (beside / "p").string() + "'";
    REQUIRE(std::system(command.c_str()) == 0);
    WorkTree files;
    const WorkTree found = read_folder(folder.path());
    for (const auto& [path, entry] : found.entries())
      if (entry.kind == TreeEntry::Kind::file) files.add(path, entry);
    CHECK(files == after);
  }
}

TEST_CASE("changes that a diff of text cannot say are refused") {
  WorkTree before = tree_of({{"f", "a\n"}}), after = tree_of({{"f", std::string("a\0", 2)}});
  CHECK_THROWS_WITH(make_patch(before, after), Contains("path 'f'"));
  after = WorkTree();
  after.add("f", {TreeEntry::Kind::file, true, "a\n"});
  CHECK_THROWS_AS(make_patch(before, after), TaskError);
  after = WorkTree();
  after.add("f", {TreeEntry::Kind::link, false, "g"});
  CHECK_THROWS_AS(make_patch(before, after), TaskError);
}

}  // namespace motley::envs
