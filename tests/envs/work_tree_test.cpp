// Work trees from folders, archives and text: what is read, and what hostile ones are refused for.
#include "envs/repository/work_tree.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <functional>

#include "tests/temporary_folder.h"

using Catch::Matchers::Contains;

namespace motley::envs {
namespace {

namespace fs = std::filesystem;
using Kind = TreeEntry::Kind;

TreeEntry file(const std::string& text, bool executable = false) { return {Kind::file, executable, text}; }
TreeEntry link_to(const std::string& target) { return {Kind::link, false, target}; }

void shell(const TemporaryFolder& folder, const std::string& command) {
  REQUIRE(std::system(("cd '" + folder.path().string() + "' && " + command).c_str()) == 0);
}

/// One header block of a ustar archive, and the content; what tar itself would never write.
std::string ustar(const std::string& name, const std::string& content, char type = '0', const std::string& link = "",
                  uint64_t claimed = UINT64_MAX) {
  std::string block(512, '\0');
  const auto put = [&](size_t at, const std::string& text) { block.replace(at, text.size(), text); };
  const auto octal = [](uint64_t value, int digits) {
    std::string text;
    for (int i = 0; i < digits; ++i, value /= 8) text.insert(text.begin(), static_cast<char>('0' + value % 8));
    return text;
  };
  put(0, name.substr(0, 100));
  put(100, "0000644");
  put(108, "0000000");
  put(116, "0000000");
  put(124, octal(claimed == UINT64_MAX ? content.size() : claimed, 11));
  put(136, octal(0, 11));
  put(148, "        ");
  block[156] = type;
  put(157, link);
  put(257, std::string("ustar\0", 6) + "00");
  uint64_t sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  put(148, octal(sum, 6) + std::string("\0 ", 2));
  std::string padded = content;
  padded.resize((content.size() + 511) / 512 * 512, '\0');
  return block + padded;
}
const std::string kEnd(1024, '\0');

}  // namespace

TEST_CASE("a path of a work tree is relative, plain and inside") {
  for (const char* good : {"a", "a/b", ".hidden", "a b/c", "...", "..a/b..", "\xc3\xa9", "-rf"}) {
    CAPTURE(good);
    CHECK(bad_path(good).empty());
  }
  const std::vector<std::pair<std::string, std::string>> bad{{"", "empty"},
                                                             {"/a", "absolute"},
                                                             {"a//b", "empty part"},
                                                             {"a/", "empty part"},
                                                             {"..", "'..'"},
                                                             {"a/../b", "'..'"},
                                                             {"./a", "'.'"},
                                                             {"a\nb", "control"},
                                                             {std::string("a\0b", 3), "control"},
                                                             {std::string(256, 'x'), "255"},
                                                             {std::string(1025, 'x'), "1024"}};
  for (const auto& [path, reason] : bad) {
    CAPTURE(path);
    CHECK_THAT(bad_path(path), Contains(reason));
    CHECK_THROWS_AS(WorkTree().add(path, file("x")), TaskError);
  }
  std::string deep = "a";
  for (int i = 0; i < 64; ++i) deep += "/a";
  CHECK_THAT(bad_path(deep), Contains("64"));
}

TEST_CASE("links stay inside the tree, and nothing lies below one") {
  WorkTree tree;
  tree.add("d/e/up", link_to("../../x"));
  tree.add("d/self", link_to("."));
  tree.add("d/f", file("x"));
  for (const char* outside : {"/etc/passwd", "../../x", "../..", "e/../../../x", "self/..", ""}) {
    CAPTURE(outside);
    CHECK_THROWS_WITH(tree.add("d/bad", link_to(outside)), Contains("link"));
  }
  CHECK_THROWS_WITH(tree.add("d/self/x", file("y")), Contains("lies below 'd/self'"));
  CHECK_THROWS_WITH(tree.add("d/f/x", file("y")), Contains("lies below 'd/f'"));
  CHECK_THROWS_WITH(tree.add("d/e", file("y")), Contains("folder elsewhere"));
  CHECK_THROWS_WITH(tree.add("d/f", file("y")), Contains("stands twice"));
  tree.add("d", {Kind::folder});
  tree.add("d", {Kind::folder});
  CHECK(tree.entries().size() == 4);
}

TEST_CASE("a tree holds so many entries and bytes and no more") {
  WorkTree tree({.entries = 2, .bytes = 10});
  tree.add("a", file("12345"));
  CHECK_THROWS_WITH(tree.add("b", file("123456")), Contains("more than 10 bytes"));
  tree.add("b", file("12345"));
  CHECK(tree.bytes() == 10);
  CHECK_THROWS_WITH(tree.add("c", file("")), Contains("one too many"));
  tree.replace("b", file("1"));
  CHECK(tree.bytes() == 6);
  tree.remove("a");
  tree.add("a/b", file("x"));
  tree.remove("a");
  CHECK(tree.find("a/b") == nullptr);
  CHECK(tree.bytes() == 1);
}

TEST_CASE("a tree comes back from a folder and from every kind of tar file") {
  WorkTree tree;
  tree.add("empty", {Kind::folder});
  tree.add("sub", {Kind::folder});
  tree.add("sub/run.sh", file("#!/bin/sh\n", true));
  tree.add("sub/data", file(std::string("\0\xff\n", 3)));
  tree.add("sub/link", link_to("../sub/data"));
  tree.add("na\xc3\xafve", file("1"));
  tree.add(std::string(150, 'l'), file("long name"));
  const TemporaryFolder folder;
  fs::create_directory(folder / "tree");
  write_tree(tree, folder / "tree");
  CHECK(read_folder(folder / "tree") == tree);
  CHECK(read_tree(folder / "tree") == tree);
  for (const char* options : {"--format=ustar", "--format=gnu", "--format=pax", "-z", "-J"}) {
    CAPTURE(options);
    const bool long_name = std::string(options) != "--format=ustar";
    shell(folder,
          std::string("tar ") + options + " -cf tree.tar -C tree " + (long_name ? "." : "$(ls tree | grep -v lll)"));
    WorkTree wanted = tree;
    if (!long_name) wanted.remove(std::string(150, 'l'));
    CHECK(read_tree(folder / "tree.tar") == wanted);
  }
}

TEST_CASE("folders with pipes, links outwards or too much are refused") {
  const TemporaryFolder folder;
  folder.write("a", std::string(100000, 'x'));
  CHECK_THROWS_WITH(read_folder(folder.path(), {.bytes = 99999}), Contains("more than 99999 bytes"));
  CHECK_THROWS_WITH(read_folder(folder.path(), {.entries = 0}), Contains("one too many"));
  CHECK_THROWS_WITH(read_folder(folder / "a"), Contains("is no folder"));
  CHECK_THROWS_WITH(read_tree(folder / "none"), Contains("does not exist"));
  CHECK_THROWS_WITH(read_tree("/dev/null"), Contains("neither a folder nor a tar file"));
  fs::create_symlink("/etc", folder / "out");
  CHECK_THROWS_WITH(read_folder(folder.path()), Contains("leaves the tree"));
  fs::remove(folder / "out");
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  CHECK_THROWS_WITH(read_folder(folder.path()), Contains("pipe"));
}

TEST_CASE("hostile tar files are refused") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& bytes, const std::string& reason, const TreeLimits& limits = {}) {
    CHECK_THROWS_WITH(read_archive(folder.write("x.tar", bytes), limits), Contains(reason));
    CHECK_THROWS_AS(read_archive(folder / "x.tar", limits), TaskError);
  };
  refused("", "no tar file");
  refused("hello", "no tar file");
  refused(ustar("../x", "1") + kEnd, "has the part '..'");
  refused(ustar("a/../../x", "1") + kEnd, "has the part '..'");
  refused(ustar("/etc/x", "1") + kEnd, "absolute");
  refused(ustar(".//etc/../x", "1") + kEnd, "has the part '..'");
  refused(ustar("a\nb", "1") + kEnd, "control");
  refused(ustar("a", "1") + ustar("a", "2") + kEnd, "stands twice");
  refused(ustar("a", "", '2', "/etc") + kEnd, "leaves the tree");
  refused(ustar("a", "", '2', ".") + ustar("a/b", "1") + kEnd, "lies below 'a'");
  refused(ustar("a", "1") + ustar("b", "", '1', "a") + kEnd, "hard link");
  refused(ustar("a", "", '3') + kEnd, "device");
  refused(ustar("a", "", '6') + kEnd, "pipe");
  refused(ustar("a", "short", '0', "", 5000), "no tar file that can be read");
  refused(ustar("a", "short", '0', "", 077777777777), "no tar file that can be read");
  refused(ustar("a", std::string(2000, 'x')) + kEnd, "more than 1999 bytes", {.bytes = 1999});
  refused(ustar("a", "1") + ustar("b", "2") + kEnd, "one too many", {.entries = 1});
  CHECK(read_archive(folder.write("x.tar", ustar("./d/", "", '5') + ustar("./d/a", "1") + kEnd)).entries().size() == 2);
  shell(folder, "printf a >holes && truncate -s 100000 holes none && tar -S -cf holes.tar holes none");
  const WorkTree holes = read_archive(folder / "holes.tar");
  CHECK(holes.find("holes")->content == "a" + std::string(99999, '\0'));
  CHECK(holes.find("none")->content == std::string(100000, '\0'));
  // A bomb: a gigabyte of zeros in a megabyte. It is refused after as much as fits, which takes a moment only.
  shell(folder, "truncate -s 1G zeros && tar -S -cf bomb.tar zeros && rm zeros");
  CHECK_THROWS_WITH(read_archive(folder / "bomb.tar", {.bytes = 1 << 20}), Contains("more than 1048576 bytes"));
}

TEST_CASE("a damaged tar file gives an error or a tree, never a crash") {
  const TemporaryFolder folder;
  const std::string good = ustar("d/", "", '5') + ustar("d/a", "content") + ustar("l", "", '2', "d/a") + kEnd;
  for (size_t at = 0; at < 1536; at += 37) {
    for (const char byte : {'\0', '\xff', '9'}) {
      std::string bytes = good;
      bytes[at] = byte;
      try {
        const WorkTree tree = read_archive(folder.write("x.tar", bytes));
        CHECK(tree.entries().size() <= 3);
      } catch (const TaskError&) {
      }
    }
  }
}

}  // namespace motley::envs
