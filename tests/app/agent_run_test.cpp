// Runs whose episodes work in real sandboxes: how they end, and that nothing is left of them then.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <thread>

#include "envs/sandbox/support.h"
#include "tests/app/binary.h"

namespace motley::app {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

const std::string kAgents = R"(name = "agents"
[run]
updates = 1000000
concurrency = 8
keep_trajectories = "all"
[model]
layers = 1
width = 16
heads = 2
kv_heads = 1
max_positions = 1024
[[tasks]]
env = "repository"
count = 20
turns = 2
[sampling]
max_tokens = 16
[algo]
correction = "sc+mis"
prompts = 2
group_size = 2
[trainer]
profile = "fp32"
[[samplers]]
name = "one"
max_sequences = 8
[eval]
every = 1000000
prompts = 1
samples = 1
k = [1]
profiles = ["fp32"]
)";

bool no_sandboxes() {
  static const bool none = !envs::examine_sandboxes().works;
  if (none) WARN("SKIPPED, this machine makes no sandboxes");
  return none;
}

/// A process by its number and the time of its start, since numbers are used again.
using Process = std::pair<pid_t, std::string>;

struct Line {
  pid_t parent = 0;
  std::string start;
};
/// Nothing for one that has ended, zombies included.
std::optional<Line> stat_of(const std::string& pid) {
  std::ifstream in("/proc/" + pid + "/stat");
  std::string line((std::istreambuf_iterator<char>(in)), {});
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(name_end + 2));
  std::vector<std::string> field{std::istream_iterator<std::string>(fields), {}};
  constexpr size_t kState = 0, kParent = 1, kStart = 19;  // proc(5), from the third field on
  if (field.size() <= kStart || field[kState] == "Z" || field[kState] == "X") return std::nullopt;
  return Line{static_cast<pid_t>(std::stol(field[kParent])), field[kStart]};
}

std::set<Process> descendants(pid_t of) {
  std::map<pid_t, Line> all;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (const auto line = stat_of(name)) all[static_cast<pid_t>(std::stol(name))] = *line;
  }
  std::set<Process> found;
  for (const auto& [pid, line] : all) {
    auto up = all.find(line.parent);
    while (up != all.end() && up->first != of) up = all.find(up->second.parent);
    if (up != all.end()) found.emplace(pid, line.start);
  }
  return found;
}

bool lives(const Process& process) {
  const auto line = stat_of(std::to_string(process.first));
  return line && line->start == process.second;
}

bool gone_within(const std::set<Process>& processes, double seconds) {
  for (const auto start = Clock::now(); std::chrono::duration<double>(Clock::now() - start).count() < seconds;
       std::this_thread::sleep_for(std::chrono::milliseconds(10)))
    if (std::none_of(processes.begin(), processes.end(), lives)) return true;
  return false;
}

/// Waits until sandboxes stand: the keeper, and a bubblewrap with what is inside for each.
std::set<Process> wait_for_sandboxes(Binary& motley) {
  constexpr size_t kTwoSandboxes = 1 + 2 * 2;
  for (const auto start = Clock::now(); motley.running() && Clock::now() - start < std::chrono::seconds(20);
       std::this_thread::sleep_for(std::chrono::milliseconds(5))) {
    std::set<Process> found = descendants(motley.pid());
    if (found.size() >= kTwoSandboxes) return found;
  }
  return {};
}

TEST_CASE("kill -9 of a run leaves no process of its sandboxes after 2 seconds") {
  if (no_sandboxes()) return;
  const TemporaryFolder folder;
  folder.write("agents.toml", kAgents);
  Binary motley(folder, {"run", "agents.toml"});
  wait_for_sandboxes(motley);
  motley.signal(SIGSTOP);  // it starts no more, and those on their way arrive
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const std::set<Process> left = descendants(motley.pid());
  INFO(motley.log());
  REQUIRE(left.size() >= 3);
  motley.signal(SIGKILL);
  motley.wait();
  CHECK(gone_within(left, 2.0));
}

TEST_CASE("Ctrl-C ends a run of agents with a checkpoint, and no process of its sandboxes is left") {
  if (no_sandboxes()) return;
  const TemporaryFolder folder;
  folder.write("agents.toml", kAgents);
  Binary motley(folder, {"run", "agents.toml"});
  const fs::path metrics = folder / "runs/agents-0/metrics.jsonl";
  std::error_code error;
  const auto start = Clock::now();
  const auto lines = [&] {
    std::ifstream in(metrics);
    return std::count(std::istreambuf_iterator<char>(in), {}, '\n');
  };
  while (motley.running() && lines() < 2 && Clock::now() - start < std::chrono::seconds(20))
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  std::set<Process> left = descendants(motley.pid());
  while (left.size() < 3 && motley.running() && Clock::now() - start < std::chrono::seconds(20))
    left = descendants(motley.pid());  // between two commands there may be few
  motley.signal(SIGINT);
  const Ended ended = motley.wait();
  INFO(ended.err);
  CHECK(ended.code == 0);
  CHECK(left.size() >= 3);
  CHECK(gone_within(left, 2.0));
  CHECK(ended.err.find("to go on: motley run --resume") != std::string::npos);
  // What the episodes were, as the second line has it: all of them scored, none failed.
  std::ifstream in(metrics);
  std::string line;
  std::getline(in, line);
  std::getline(in, line);
  const nlohmann::json row = nlohmann::json::parse(line);
  CHECK(row.at("samples/failed") == 0);
  CHECK(row.at("episode/turns") >= 1);
  CHECK(row.at("episode/read_tokens") > 10);
  double shares = 0.0;
  for (const auto& [name, value] : row.items())
    if (name.starts_with("episode/end/")) shares += value.get<double>();
  CHECK(shares == Approx(1.0));
}

TEST_CASE("a run of agents where no sandbox can be made is refused with what would mend it") {
  if (no_sandboxes()) return;
  const TemporaryFolder folder;
  folder.write("agents.toml", kAgents);
  // A user namespace of its own, in which no further ones may be made.
  const Ended ended = run_binary(folder, {"run", "agents.toml"},
                                 "unshare -Ur sh -c 'echo 0 >/proc/sys/user/max_user_namespaces && \"$@\"' sh");
  INFO(ended.err);
  CHECK(ended.code == 2);
  CHECK(ended.out.empty());
  CHECK(ended.err.find("this machine makes no sandboxes") != std::string::npos);
  CHECK(ended.err.find("sysctl -w user.max_user_namespaces=15000") != std::string::npos);
  CHECK_FALSE(fs::exists(folder / "runs"));
}

}  // namespace
}  // namespace motley::app
