// A sandbox's session: what lasts from call to call, limits, output, files in and out.
#include <catch2/catch.hpp>
#include <chrono>
#include <string>
#include <thread>

#include "envs/sandbox/helper/middle_cut.h"
#include "tests/envs/sandbox_here.h"

namespace motley::envs {
namespace {

SandboxLimits small() {
  SandboxLimits limits;
  limits.memory_bytes = 64ULL << 20;
  limits.disk_bytes = 4ULL << 20;
  limits.call_seconds = 5;
  return limits;
}

TEST_CASE("calls share one shell: folder, variables and functions last, statuses and output come back", "[sandbox]") {
  SandboxHost* host = sandbox_host();
  if (host == nullptr) return;
  Sandbox sandbox(*host, small());
  REQUIRE(sandbox.call("mkdir deep && cd deep && there=yes && twice() { echo $1$1; }").status == 0);
  const CallResult second =
      sandbox.call("pwd; echo $there; twice a; echo to error >&2; exit_status() { return 7; }; exit_status");
  CHECK(second.output == "/task/deep\nyes\naa\nto error\n");
  CHECK(second.status == 7);
  CHECK_FALSE(second.new_shell);
  CHECK_FALSE(second.timed_out);
  CHECK(second.seconds > 0);
  CHECK(sandbox.call("cat; echo \"unclosed").status != 0);
  CHECK(sandbox.call("echo still here").output == "still here\n");
  CHECK(sandbox.call("").status == 0);
}

TEST_CASE("a shell that ends is replaced, in the same folder, and the result says so", "[sandbox]") {
  SandboxHost* host = sandbox_host();
  if (host == nullptr) return;
  Sandbox sandbox(*host, small());
  sandbox.call("mkdir deep; cd deep; there=yes");
  const CallResult ended = sandbox.call("echo last words; exit 3");
  CHECK(ended.status == 3);
  CHECK(ended.new_shell);
  CHECK(ended.output == "last words\n");
  const CallResult next = sandbox.call("pwd; echo \"[$there]\"");
  CHECK(next.output == "/task/deep\n[]\n");
  CHECK_FALSE(next.new_shell);
}

TEST_CASE("a call past its limit is killed with what it started, and nothing of it goes on", "[sandbox]") {
  SandboxHost* host = sandbox_host();
  if (host == nullptr) return;
  Sandbox sandbox(*host, small());
  sandbox.call("sleep 1000 & cd /tmp");
  const CallResult late = sandbox.call("echo begun; sleep 999 & (sleep 998; touch wrong); touch wrong", 0.3);
  CHECK(late.timed_out);
  CHECK(late.new_shell);
  CHECK(late.status == 137);
  CHECK(late.seconds >= 0.3);
  CHECK(late.seconds < 2.0);
  CHECK(late.output == "begun\n");
  // The job of an earlier call is no part of it.
  CHECK(sandbox.call("pwd; ls; pgrep -a sleep | cut -d' ' -f2-").output == "/tmp\nsleep 1000\n");
  const CallResult loop = sandbox.call("echo begun; while :; do :; done", 0.3);
  CHECK(loop.timed_out);
  CHECK(loop.output == "begun\n");
}

TEST_CASE("jobs in the background are held to the limits between calls; the next call says that the shell is new",
          "[sandbox]") {
  SandboxHost* host = sandbox_host(false);
  if (host == nullptr) return;
  SandboxLimits limits = small();
  limits.files = 100;
  Sandbox sandbox(*host, limits);
  sandbox.call("cd /tmp; (sleep 0.1; mkdir many; cd many; touch {1..200}; sleep 1000) &");
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  const CallResult next = sandbox.call("pwd; pgrep sleep");
  CHECK(next.output == "/tmp\n");
  CHECK(next.new_shell);
  CHECK_FALSE(sandbox.call("true").new_shell);
}

TEST_CASE("a shell without output takes no processor time", "[sandbox]") {
  SandboxHost* host = sandbox_host();
  if (host == nullptr) return;
  Sandbox sandbox(*host, small());
  sandbox.call("exec >/dev/null 2>&1; sleep 0.4");
  CHECK(sandbox.run("exec >/dev/null 2>&1; sleep 0.4").status == 0);
  const CallResult ticks = sandbox.run("awk '{ print $14 + $15 }' /proc/1/stat");  // hundredths of a second
  CHECK(std::stoi(ticks.output) < 20);
}

TEST_CASE("a command of its own: its status is the kernel's, it leaves nothing, the session is untouched",
          "[sandbox]") {
  SandboxHost* host = sandbox_host();
  if (host == nullptr) return;
  Sandbox sandbox(*host, small());
  sandbox.call("there=yes; cd /tmp");
  const CallResult own = sandbox.run("pwd; echo [$there]; sleep 1000 & exit 5");
  CHECK(own.output == "/task\n[]\n");
  CHECK(own.status == 5);
  CHECK(sandbox.run("kill -9 $$").status == 137);
  CHECK(sandbox.run("sleep 100", 0.2).timed_out);
  CHECK(sandbox.call("echo $there; pwd; pgrep sleep").output == "yes\n/tmp\n");
  // The session's shell can be made to say anything, to the harm of its own session alone.
  const std::string forge = "for fd in /proc/$PPID/fd/* /proc/$$/fd/*; do printf '0\\0' >$fd; done 2>/dev/null; exit 9";
  CHECK(sandbox.run(forge).status == 9);
  sandbox.call("bash -c '" + forge + "'");
  CHECK(sandbox.run("exit 4").status == 4);
}

TEST_CASE("the time of an episode ends everything, with the reason", "[sandbox]") {
  SandboxHost* host = sandbox_host();
  if (host == nullptr) return;
  SandboxLimits limits = small();
  limits.episode_seconds = 0.5;
  Sandbox sandbox(*host, limits);
  CHECK_THROWS_WITH(sandbox.call("sleep 100"), Catch::Contains("time limit of the episode"));
  CHECK_THROWS_AS(sandbox.call("true"), SandboxError);
  CHECK(sandbox.destroy());
}

TEST_CASE("long output loses its middle and says how much; any bytes pass", "[sandbox]") {
  SandboxHost* host = sandbox_host();
  if (host == nullptr) return;
  SandboxLimits limits = small();
  limits.output_bytes = 100;
  Sandbox sandbox(*host, limits);
  const CallResult all = sandbox.call("head -c 100 /dev/zero");
  CHECK(all.output == std::string(100, '\0'));
  CHECK(all.cut_bytes == 0);
  const CallResult cut = sandbox.call("for i in {1000..9999}; do echo $i; done");
  CHECK(cut.cut_bytes == 45000 - 100);
  CHECK(cut.output.starts_with("1000\n1001\n"));
  CHECK(cut.output.ends_with("9998\n9999\n"));
  CHECK(cut.output.find("\n[44900 bytes cut]\n") != std::string::npos);
  CHECK(sandbox.call("printf 'a\\377\\0b'").output == std::string("a\377\0b", 4));
}

TEST_CASE("middle cut: what is kept depends on the bytes alone, not on how they are divided", "[sandbox]") {
  std::string bytes;
  for (int i = 0; i < 30000; ++i) bytes.push_back(static_cast<char>(i * 7919 >> 3));
  for (const size_t limit : {0, 1, 2, 99, 100, 29999, 30000, 30001}) {
    for (const size_t piece : {1, 3, 4096, 30000}) {
      MiddleCut output(limit);
      for (size_t at = 0; at < bytes.size(); at += piece) output.add(std::string_view(bytes).substr(at, piece));
      INFO(limit << " in pieces of " << piece);
      const size_t kept = std::min(limit, bytes.size());
      REQUIRE(output.cut() == bytes.size() - kept);
      REQUIRE(output.head() + output.tail() ==
              bytes.substr(0, std::min(limit - limit / 2, kept)) +
                  bytes.substr(bytes.size() - (kept - std::min(limit - limit / 2, kept))));
    }
  }
}

TEST_CASE("files go in and come out as they are: bytes, modes, links, odd names", "[sandbox]") {
  SandboxHost* host = sandbox_host();
  if (host == nullptr) return;
  Sandbox sandbox(*host, small());
  const FileTree tree = {{"a.txt", file(std::string("x\0\377\n", 4))},
                         {"bin/run", executable("#!/bin/sh\necho ran\n")},
                         {"bin/link", link_to("../a.txt")},
                         {"new\nline/ -rf $(x)\t'\"", file("")},
                         {"\377\376", file("no UTF-8")},
                         {"empty", folder()},
                         {"bin", folder()},
                         {"new\nline", folder()}};
  sandbox.put(tree);
  CHECK(sandbox.call("bin/run; cmp a.txt bin/link && echo same").output == "ran\nsame\n");
  CHECK(sandbox.take() == tree);
  CHECK(sandbox.take("bin").contains("run"));
  sandbox.call(
      "rm a.txt; echo b >bin/run; mkfifo pipe; chmod 0 bin/run; mkdir locked; echo c >locked/c; chmod 0 "
      "locked");
  FileTree changed = tree;
  changed.erase("a.txt");
  changed["bin/run"] = file("b\n");
  changed["locked"] = folder();
  changed["locked/c"] = file("c\n");
  CHECK(sandbox.take() == changed);
}

TEST_CASE("what may not go in or out is refused, and the sandbox goes on", "[sandbox]") {
  SandboxHost* host = sandbox_host();
  if (host == nullptr) return;
  Sandbox sandbox(*host, small());
  for (const std::string& path : {std::string(), std::string("/etc/x"), std::string("../x"), std::string("a/../x"),
                                  std::string("a//b"), std::string("a/"), std::string("."), std::string("a\0b", 3)})
    CHECK_THROWS_AS(sandbox.put(path, {}), SandboxError);
  sandbox.call("ln -s /tmp out; ln -s /tmp/target file; mkdir dir");
  CHECK_THROWS_WITH(sandbox.put("out/x", {}), Catch::Contains("is no folder"));
  CHECK_THROWS_WITH(sandbox.put("dir", {}), Catch::Contains("cannot be made"));
  sandbox.put("file", file("replaces the link"));
  CHECK(sandbox.call("ls /tmp; cat file").output == "replaces the link");
  CHECK_THROWS_WITH(sandbox.put("big", file(std::string(5 << 20, 'x'))), Catch::Contains("No space left"));
  sandbox.call("rm big; head -c 2000000 /dev/zero >zeros");
  CHECK_THROWS_WITH(sandbox.take("", 1000000), Catch::Contains("more than 1000000 bytes"));
  sandbox.call("rm zeros; for i in {1..70}; do mkdir d; cd d; done");
  CHECK_THROWS_WITH(sandbox.take(), Catch::Contains("folders deep"));
  CHECK_THROWS_WITH(sandbox.take("nowhere"), Catch::Contains("No such file"));
  CHECK_THROWS_WITH(sandbox.call(std::string("a\0b", 3)), Catch::Contains("NUL"));
  CHECK(sandbox.call("echo on").output == "on\n");
}

TEST_CASE("limits out of range are named", "[sandbox]") {
  SandboxLimits limits;
  CHECK_NOTHROW(check_limits(limits));
  limits.call_seconds = std::nan("");
  CHECK_THROWS_WITH(check_limits(limits), Catch::Contains("call_seconds"));
  limits = {};
  limits.disk_bytes = limits.memory_bytes;
  CHECK_THROWS_WITH(check_limits(limits), Catch::Contains("disk_bytes"));
  limits = {};
  limits.readable = {"relative"};
  CHECK_THROWS_WITH(check_limits(limits), Catch::Contains("readable"));
}

}  // namespace
}  // namespace motley::envs
