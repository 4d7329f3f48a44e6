// However a sandbox ends, and however motley does, nothing of it is left. The long runs are `make soak-sandbox`.
#include <grp.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "tests/envs/sandbox_here.h"

namespace motley::envs {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

SandboxLimits small() {
  SandboxLimits limits;
  limits.memory_bytes = 64ULL << 20;
  limits.disk_bytes = 4ULL << 20;
  return limits;
}

/// Processes of this machine with the text in their command line; zombies have none.
int processes_with(const std::string& text) {
  int count = 0;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc", error)) {
    std::ifstream in(entry.path() / "cmdline");
    const std::string line((std::istreambuf_iterator<char>(in)), {});
    if (line.find(text) != std::string::npos && entry.path().filename() != std::to_string(getpid())) ++count;
  }
  return count;
}

bool gone_within(const std::string& text, double seconds) {
  for (const auto start = Clock::now(); since(start) < seconds;
       std::this_thread::sleep_for(std::chrono::milliseconds(10)))
    if (processes_with(text) == 0) return true;
  return false;
}

/// Waits until so many have it: a shell comes back before what it started in the background has its own command line.
bool reached(const std::string& text, int count) {
  for (const auto start = Clock::now(); since(start) < 2.0; std::this_thread::sleep_for(std::chrono::milliseconds(5)))
    if (processes_with(text) >= count) return true;
  return false;
}

/// Folders in the host's cgroup places that its process made.
int cgroup_folders(const SandboxHost& host, pid_t pid) {
  int count = 0;
  if (!host.cgroups()) return 0;
  for (const std::string& place : host.cgroups()->places())
    for (const fs::directory_entry& entry : fs::directory_iterator(place))
      if (entry.path().filename().string().starts_with("motley-" + std::to_string(pid) + "-")) ++count;
  return count;
}

size_t open_descriptors(const std::string& pid) {
  return static_cast<size_t>(std::distance(fs::directory_iterator("/proc/" + pid + "/fd"), fs::directory_iterator()));
}

uint64_t resident_kib(const std::string& pid) {
  std::ifstream in("/proc/" + pid + "/status");
  for (std::string key, rest; in >> key && std::getline(in, rest);)
    if (key == "VmRSS:") return std::stoull(rest);
  return 0;
}

size_t children_of(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/task/" + std::to_string(pid) + "/children");
  return static_cast<size_t>(std::distance(std::istream_iterator<long>(in), {}));
}

/// A number of seconds to sleep that no other process has.
std::string mark(int number) { return "4" + std::to_string(getpid()) + "." + std::to_string(number); }

constexpr const char* daemons =
    "(setsid nohup sleep MARK &) & sleep MARK & disown; trap '' TERM HUP INT; sleep MARK & true";
std::string start_daemons(std::string mark_text) {
  std::string command = daemons;
  for (size_t at = 0; (at = command.find("MARK")) != std::string::npos;) command.replace(at, 4, mark_text);
  return command;
}

TEST_CASE("a sandbox that ends takes its daemons, descriptors and cgroups with it", "[sandbox]") {
  const bool use_cgroups = GENERATE(true, false);
  if (sandbox_host(use_cgroups) == nullptr) return;
  SandboxHost host(use_cgroups);
  { Sandbox first(host, small()); }
  const std::string keeper = std::to_string(host.keeper().pid());
  const size_t ours = open_descriptors("self"), its = open_descriptors(keeper);
  const size_t mounts =
      std::distance(std::istreambuf_iterator<char>(std::ifstream("/proc/self/mountinfo").rdbuf()), {});
  {
    Sandbox sandbox(host, small());
    REQUIRE(sandbox.call(start_daemons(mark(1))).status == 0);
    REQUIRE(reached(mark(1), 3));
    CHECK(sandbox.destroy());
    CHECK(processes_with(mark(1)) == 0);
    CHECK_THROWS_AS(sandbox.call("true"), SandboxError);
  }
  CHECK(children_of(host.keeper().pid()) == 0);
  CHECK(open_descriptors("self") == ours);
  CHECK(open_descriptors(keeper) == its);
  CHECK(std::distance(std::istreambuf_iterator<char>(std::ifstream("/proc/self/mountinfo").rdbuf()), {}) ==
        static_cast<std::ptrdiff_t>(mounts));
  if (host.cgroups())
    for (const std::string& place : host.cgroups()->places())
      for (const fs::directory_entry& entry : fs::recursive_directory_iterator(place))
        CHECK(entry.path().filename() != "2");
}

TEST_CASE("a keeper that is killed takes the sandboxes with it; the next one gets another", "[sandbox]") {
  if (sandbox_host() == nullptr) return;
  SandboxHost host;
  Sandbox sandbox(host, small());
  sandbox.call(start_daemons(mark(2)));
  const pid_t first = host.keeper().pid();
  kill(first, SIGKILL);
  CHECK_THROWS_WITH(sandbox.call("sleep 100"), Catch::Contains("killed from outside"));
  CHECK(gone_within(mark(2), 2.0));
  Sandbox next(host, small());
  CHECK(next.call("echo on").output == "on\n");
  CHECK(host.keeper().pid() != first);
}

/// Held by another process, which the next test kills.
TEST_CASE("holds sandboxes until it is killed", "[.hold-sandboxes]") {
  const char* text = std::getenv("MOTLEY_TEST_MARK");
  REQUIRE(text != nullptr);
  SandboxHost with(true), without(false);
  Sandbox first(with, small()), second(without, small());
  first.call(start_daemons(text));
  second.call(start_daemons(text));
  second.call("f() { sleep 0.1; f; f & }; f & sleep " + std::string(text) + " & true");
  write(STDOUT_FILENO, "holding\n", 8) > 0 ? pause() : 0;
}

TEST_CASE("kill -9 of motley leaves no process of a sandbox after two seconds, and no cgroup", "[sandbox]") {
  SandboxHost* host = sandbox_host();
  if (host == nullptr) return;
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addclose(&actions, ends[0]);
  char name[] = "test_envs", which[] = "[.hold-sandboxes]";
  char* arguments[] = {name, which, nullptr};
  const std::string variable = "MOTLEY_TEST_MARK=" + mark(3);
  char* environment[] = {const_cast<char*>(variable.c_str()), nullptr};
  pid_t pid = 0;
  REQUIRE(posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, arguments, environment) == 0);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string said;
  for (char byte = 0; said.find("holding\n") == std::string::npos && read(ends[0], &byte, 1) == 1;)
    said.push_back(byte);
  close(ends[0]);
  CHECK(reached(mark(3), 7));
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  CHECK(gone_within(mark(3), 2.0));
  const auto start = Clock::now();
  while (cgroup_folders(*host, pid) > 0 && since(start) < 2.0)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK(cgroup_folders(*host, pid) == 0);
}

TEST_CASE("what a dead run left in its cgroups is cleared away at the next start", "[sandbox]") {
  SandboxHost* host = sandbox_host();
  if (host == nullptr || !host->cgroups()) return;
  const std::string run = host->cgroups()->places().at(0) + "/motley-1-12345-0";  // process 1 started at another time
  REQUIRE(fs::create_directories(run + "/7"));
  const pid_t pid = fork();
  if (pid == 0) {
    pause();
    _exit(0);
  }
  std::ofstream(run + "/7/cgroup.procs") << pid << std::flush;
  const SandboxHost next;
  CHECK_FALSE(fs::exists(run));
  kill(pid, SIGTERM);  // nothing to a process that was killed; ends one that was not
  int status = 0;
  CHECK(waitpid(pid, &status, 0) == pid);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGKILL);
}

TEST_CASE("an ordinary user has sandboxes too, without cgroups of root's", "[sandbox]") {
  if (sandbox_host() == nullptr) return;
  const pid_t pid = fork();
  if (pid == 0) {
    bool right = geteuid() != 0 || (setgroups(0, nullptr) == 0 && setresgid(65534, 65534, 65534) == 0 &&
                                    setresuid(65534, 65534, 65534) == 0);
    try {
      SandboxHost host;
      Sandbox sandbox(host, small());
      right = right && sandbox.call("id -u; ulimit -u").output == "1000\n64\n";
      right = right && sandbox.call("sleep 10", 0.1).timed_out && sandbox.destroy();
    } catch (const std::exception&) {
      right = false;
    }
    _exit(right ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.at(values.size() / 2);
}

TEST_CASE("soak: 1,000 episodes back to back leave nothing, and memory is flat", "[.soak-sandbox]") {
  if (sandbox_host() == nullptr) return;
  SandboxHost host;
  std::vector<double> starts, ends;
  std::string keeper;
  size_t ours = 0, its = 0;
  uint64_t our_memory = 0, its_memory = 0;
  for (int episode = 0; episode < 1000; ++episode) {
    const auto start = Clock::now();
    Sandbox sandbox(host, small());
    starts.push_back(since(start));
    sandbox.put("program.sh", executable("#!/bin/bash\necho $((6 * 7))\n"));
    REQUIRE(sandbox.call("./program.sh; (setsid sleep " + mark(4) + " &) &").output == "42\n");
    REQUIRE(sandbox.take().size() == 1);
    const auto end = Clock::now();
    REQUIRE(sandbox.destroy());
    ends.push_back(since(end));
    if (episode != 99) continue;  // caches are warm
    keeper = std::to_string(host.keeper().pid());
    ours = open_descriptors("self");
    its = open_descriptors(keeper);
    our_memory = resident_kib("self");
    its_memory = resident_kib(keeper);
  }
  CHECK(processes_with(mark(4)) == 0);
  CHECK(children_of(host.keeper().pid()) == 0);
  CHECK(open_descriptors("self") == ours);
  CHECK(open_descriptors(keeper) == its);
  CHECK(resident_kib("self") <= our_memory + 1024);
  CHECK(resident_kib(keeper) <= its_memory + 1024);
  CHECK(median(starts) < 0.030);
  WARN("start: median " << median(starts) * 1e3 << " ms, slowest "
                        << *std::max_element(starts.begin(), starts.end()) * 1e3 << " ms; end: median "
                        << median(ends) * 1e3 << " ms; motley " << our_memory << " KiB then " << resident_kib("self")
                        << ", keeper " << its_memory << " then " << resident_kib(keeper));
}

TEST_CASE("soak: 100 sandboxes at once, all of them working", "[.soak-sandbox]") {
  const bool use_cgroups = GENERATE(true, false);
  if (sandbox_host(use_cgroups) == nullptr) return;
  SandboxHost host(use_cgroups);
  std::vector<std::unique_ptr<Sandbox>> sandboxes(100);
  std::vector<double> starts;
  for (auto& sandbox : sandboxes) {
    const auto start = Clock::now();
    sandbox = std::make_unique<Sandbox>(host, small());
    starts.push_back(since(start));
  }
  CHECK(median(starts) < 0.030);
  const auto begin = Clock::now();
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (size_t i = 0; i < sandboxes.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int call = 0; call < 5; ++call) {
        const std::string number = std::to_string(i);
        sandboxes[i]->call("awk 'BEGIN { for (i = 0; i < 50000; i++) s += i; printf \"%d\", s + " + number +
                           " }' >out");
        if (sandboxes[i]->call("cat out").output == std::to_string(1249975000 + i)) ++right;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double worked = since(begin);
  CHECK(right == 500);
  const auto end = Clock::now();
  sandboxes.clear();
  WARN((use_cgroups ? "cgroups" : "watched")
       << ": start one after another: median " << median(starts) * 1e3 << " ms; 1,000 calls in 100 threads: " << worked
       << " s; all ended in " << since(end) << " s");
  CHECK(children_of(host.keeper().pid()) == 0);
}

}  // namespace
}  // namespace motley::envs
