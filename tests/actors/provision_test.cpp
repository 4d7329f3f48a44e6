// Provisioners: processes really start, end and are missed; commands are run as they stand in the TOML.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <thread>

#include "actors/provision/command_provisioner.h"
#include "actors/provision/command_template.h"
#include "actors/provision/process_provisioner.h"
#include "actors/provision/provisioner.h"
#include "tests/temporary_folder.h"

namespace motley::actors {
namespace {

using Clock = std::chrono::steady_clock;

const ProvisionContext kContext{.prefix = "run-0-h100-",
                                .group = "h100",
                                .profile = "h100-fp8",
                                .device = "cuda:0",
                                .join = "127.0.0.1:7777",
                                .key = "/k e y",
                                .program = "/usr/bin/motley"};

/// Waits for at most ten seconds.
bool soon(const std::function<bool()>& condition) {
  for (const auto deadline = Clock::now() + std::chrono::seconds(10); Clock::now() < deadline;) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

/// Not there, or only waiting for its parent to look.
bool gone(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(in, text);
  const size_t end = text.rfind(") ");
  return end == std::string::npos || text[end + 2] == 'Z' || text[end + 2] == 'X';
}

pid_t pid_in(const TemporaryFolder& folder, const std::string& name) {
  const std::string text = folder.read(name);
  return text.ends_with('\n') ? std::stoi(text) : 0;
}

/// sh -c SCRIPT, for which --instance NAME are $0 and $1.
ProcessProvisioner shell(const std::string& script) { return ProcessProvisioner({"sh", "-c", script}, kContext); }

std::vector<std::string> running(Provisioner& provisioner) {
  std::vector<std::string> names;
  for (const Instance& each : provisioner.list())
    if (each.ending.empty()) names.push_back(each.name);
  return names;
}

TEST_CASE("process: an instance is started by name, told to end, and missed", "[provision]") {
  const TemporaryFolder folder;
  const std::string file = (folder / "pid").string();
  ProcessProvisioner provisioner = shell("echo $$ >" + file + "; echo \"$1\" >" + file + ".name; exec sleep 300");
  provisioner.start("run-0-h100-1");
  REQUIRE(soon([&] { return pid_in(folder, "pid") > 0; }));
  const pid_t pid = pid_in(folder, "pid");
  CHECK(soon([&] { return folder.read("pid.name") == "run-0-h100-1\n"; }));
  CHECK(running(provisioner) == std::vector<std::string>{"run-0-h100-1"});
  provisioner.stop("run-0-h100-1");
  provisioner.stop("run-0-h100-1");  // twice, or unknown: nothing
  provisioner.stop("run-0-h100-2");
  CHECK(soon([&] { return provisioner.list().empty(); }));  // and no ending: it was asked to
  CHECK(gone(pid));
}

TEST_CASE("process: what ends by itself is told once, with status and last words", "[provision]") {
  ProcessProvisioner provisioner = shell("echo first >&2; echo 'no device' >&2; exit 3");
  provisioner.start("run-0-h100-1");
  std::vector<Instance> listed;
  REQUIRE(soon([&] {
    listed = provisioner.list();
    return !listed.empty() && !listed[0].ending.empty();
  }));
  REQUIRE(listed.size() == 1);
  CHECK(listed[0].name == "run-0-h100-1");
  CHECK(listed[0].ending == "its process ended with exit status 3: no device");
  CHECK(provisioner.list().empty());

  ProcessProvisioner absent({"/no/such/program"}, kContext);
  absent.start("run-0-h100-2");
  REQUIRE(soon([&] {
    listed = absent.list();
    return !listed.empty() && !listed[0].ending.empty();
  }));
  CHECK_THAT(listed[0].ending,
             Catch::StartsWith("its process ended with exit status 127: ") && Catch::Contains("/no/such/program"));
}

TEST_CASE("process: one that writes without end neither blocks nor fills memory", "[provision]") {
  const TemporaryFolder folder;
  const std::string file = (folder / "done").string();
  ProcessProvisioner provisioner =
      shell("head -c 1000000 /dev/zero >&2; head -c 1000000 /dev/zero; echo 0 >" + file + "; exec sleep 300");
  provisioner.start("run-0-h100-1");
  CHECK(soon([&] {
    provisioner.tend();
    return !folder.read("done").empty();
  }));
}

TEST_CASE("process: one that does not heed SIGTERM is killed in time, with what it started", "[provision]") {
  const TemporaryFolder folder;
  const std::string file = (folder / "pid").string();
  ProcessProvisioner provisioner =
      shell("trap '' TERM; sleep 300 & echo $! >" + file + "; while :; do wait; sleep 0.01; done");
  provisioner.start("run-0-h100-1");
  REQUIRE(soon([&] { return pid_in(folder, "pid") > 0; }));
  const auto begin = Clock::now();
  CHECK(provisioner.stop_all({"run-0-h100-1"}, begin + std::chrono::milliseconds(100)).empty());
  CHECK(Clock::now() - begin < std::chrono::seconds(4));
  CHECK(soon([&] { return gone(pid_in(folder, "pid")); }));
}

TEST_CASE("process: kill -9 on the parent leaves no child", "[provision]") {
  const TemporaryFolder folder;
  const std::string file = (folder / "pid").string();
  const pid_t parent = fork();
  REQUIRE(parent >= 0);
  if (parent == 0) {
    ProcessProvisioner provisioner = shell("echo $$ >" + file + "; exec sleep 300");
    provisioner.start("run-0-h100-1");
    for (;;) pause();
  }
  const bool started = soon([&] { return pid_in(folder, "pid") > 0; });
  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  REQUIRE(started);
  CHECK(soon([&] { return gone(pid_in(folder, "pid")); }));
}

TEST_CASE("a command's places are filled in, word by word; other braces stay", "[provision]") {
  CHECK(placeholders_of("--join {join} {x}{key}") == std::vector<std::string>{"join", "x", "key"});
  CHECK(placeholders_of("awk '{print $1}' {.items[*]} {} {Group} {join").empty());
  CHECK(fill_in({"a{group}b", "{group}{instance}", "{print $1}", "{other}", "{{group}}", "{group"},
                {{"group", "g h"}, {"instance", "{group}"}}) ==
        std::vector<std::string>{"ag hb", "g h{group}", "{print $1}", "{other}", "{g h}", "{group"});
}

TEST_CASE("names of instances hold what hosts, jobs and pods may be called", "[provision]") {
  const std::string prefix = instance_prefix("Quick_start-0", "h100+FP8");
  CHECK(prefix == "quick-start-0-h100-fp8-");
  CHECK(instance_prefix(std::string(100, 'x'), std::string(100, 'y')).size() == 50);
  CHECK(instance_number(prefix + "12", prefix) == 12);
  for (const std::string end : {"", "x", "1x", "-1", "1234567890", "0"})
    CHECK(instance_number(prefix + end, prefix) == 0);
  CHECK(instance_number("quick-start-0-h100-1", prefix) == 0);
}

ProvisionOptions commands(std::vector<std::string> start, std::vector<std::string> list = {"true"}) {
  return {.provisioner = "command",
          .start = std::move(start),
          .stop = {"sh", "-c", "echo stop $0 >&2; exit 4", "{instance}"},
          .list = std::move(list)};
}

std::string failure(const std::function<void()>& call) {
  try {
    call();
  } catch (const ProvisionError& error) {
    return error.what();
  }
  return "none";
}

TEST_CASE("command: words reach the program as they are, and its failures the message", "[provision]") {
  const TemporaryFolder folder;
  const std::string file = (folder / "seen").string();
  CommandProvisioner good(commands({"sh", "-c", "printf '%s\\n' \"$@\" >" + file, "x", "--join={join}", "{key}",
                                    "{group}/{profile}", "{instance}; echo $HOME", "*"}),
                          kContext, {});
  good.start("run-0-h100-1");
  CHECK(folder.read("seen") == "--join=127.0.0.1:7777\n/k e y\nh100/h100-fp8\nrun-0-h100-1; echo $HOME\n*\n");
  CHECK(failure([&] { good.stop("run-0-h100-1"); }) ==
        "the stop command 'sh' ended with exit status 4: stop run-0-h100-1");
  CHECK_THAT(failure([&] { CommandProvisioner(commands({"/no/such/tool"}), kContext, {}).start("x"); }),
             Catch::StartsWith("the start command '/no/such/tool' ended with exit status 127: "));

  ProvisionOptions slow = commands({"sh", "-c", "echo connecting >&2; exec sleep 300"});
  slow.call_seconds = 0.2;
  CHECK_THAT(failure([&] { CommandProvisioner(slow, kContext, {}).start("x"); }),
             Catch::Contains("took longer than samplers.call_seconds") && Catch::EndsWith("killed: connecting"));
  slow.call_seconds = 300;
  CHECK_THAT(failure([&] { CommandProvisioner(slow, kContext, [] { return true; }).start("x"); }),
             Catch::Contains("cut short by the end of the run"));
}

TEST_CASE("command: a listing is read by first words; what is not of the group is passed over", "[provision]") {
  const auto listed = [](const std::string& text) {
    CommandProvisioner provisioner(commands({"true"}, {"printf", "%s", text}), kContext, {});
    return running(provisioner);
  };
  CHECK(listed("").empty());
  CHECK(listed("pod/run-0-h100-1\nrun-0-h100-2 Running 3m\n  run-0-h100-3\nrun-0-h100-2\n\nrun-0-h100-x\nrun-0-b200-4\n"
               "run-1-h100-5\nother") == std::vector<std::string>{"run-0-h100-1", "run-0-h100-2", "run-0-h100-3"});
  CommandProvisioner endless(commands({"true"}, {"yes"}), kContext, {});
  CHECK_THAT(failure([&] { endless.list(); }), Catch::Contains("printed more than 1048576 bytes"));
}

TEST_CASE("command: at the end all are stopped at once, failures are told, and nobody waits past the deadline",
          "[provision]") {
  const TemporaryFolder folder;
  ProvisionOptions options = commands({"true"});
  options.stop = {"sh", "-c",
                  "[ $0 = bad ] && exit 7; [ $0 = slow ] && sleep 300; touch " + folder.path().string() + "/$0",
                  "{instance}"};
  CommandProvisioner provisioner(options, kContext, {});
  std::vector<std::string> names{"slow", "bad"};
  for (int i = 0; i < 20; ++i) names.push_back("n" + std::to_string(i));
  const auto begin = Clock::now();
  const std::vector<std::string> failures = provisioner.stop_all(names, begin + std::chrono::seconds(1));
  CHECK(Clock::now() - begin < std::chrono::seconds(5));
  REQUIRE(failures.size() == 2);
  CHECK(failures[0] == "bad: the stop command ended with exit status 7");
  CHECK(failures[1] == "slow: the stop command took too long");
  for (size_t i = 2; i < names.size(); ++i) CHECK(std::filesystem::exists(folder / names[i]));
}

}  // namespace
}  // namespace motley::actors
