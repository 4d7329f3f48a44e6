// [autoscaler] of an experiment: what is refused, what is printed, the recipes of docs/fleet.md, and runs of the binary
// whose samplers are processes.
#include <catch2/catch.hpp>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "app/experiment_toml.h"
#include "app/schema.h"
#include "tests/app/binary.h"

namespace motley::app {
namespace {

namespace fs = std::filesystem;

const fs::path kSource = MOTLEY_SOURCE_DIR;

const std::string kBegin = "algo.correction = \"grpo\"\n[[tasks]]\nenv = \"arithmetic\"\n";  // three lines

/// Where and why it is refused, without the folder; "accepted" if it is not.
std::string refusal(const std::string& text) {
  const TemporaryFolder folder;
  const std::string file = folder.write("x.toml", text).string();
  try {
    load_experiment({file, {}, ""});
  } catch (const InputError& error) {
    return std::string(error.what()).substr(file.size() - 6);
  }
  return "accepted";
}

std::string group(const std::string& lines, const std::string& section = "[autoscaler]\n") {  // the lines begin at 6
  return kBegin + "[[samplers]]\nname = \"a\"\n" + lines + section;
}

const std::string kCommands =
    "provisioner = \"command\"\nmaximum = 2\nstart = [\"on\", \"{instance}\"]\nstop = [\"off\", \"{instance}\"]\n"
    "list = [\"ls\"]\n";

TEST_CASE("keys of an autoscaler that make no sense together are refused where they stand", "[autoscaler]") {
  const auto refused = [](const std::string& text, const std::string& where, const std::string& part) {
    const std::string message = refusal(text);
    CAPTURE(text, message);
    CHECK(message.starts_with(where + ": error: "));
    CHECK(message.find(part) != std::string::npos);
  };
  CHECK(refusal(group("maximum = 2\n")) == "accepted");
  CHECK(refusal(group(kCommands)) == "accepted");
  refused(group("maximum = 2\n", ""), "x.toml:6:11", "a maximum without an autoscaler");
  refused(group("join_seconds = 2\n", ""), "x.toml:6:16", "no effect without a section [autoscaler]");
  refused("run.async = false\n" + group(""), "x.toml:7:2", "an autoscaler in lock-step");
  refused(group("minimum = 3\nmaximum = 2\n"), "x.toml:6:11", "at least 3 and at most 2 replicas");
  refused(group("", "[autoscaler]\nspare_idle = 0.1\n"), "x.toml:6:2", "they must rise in this order");
  refused(group("price_per_hour = 3\n", "[autoscaler]\nbudget_per_hour = 2\n"), "x.toml:8:19",
          "the minima of the groups cost 3");
  refused(group("minimum = 0\nprice_per_hour = 3\n", "[autoscaler]\nbudget_per_hour = 2\n"), "x.toml:9:19",
          "no group may have a replica");
  refused(group("provisioner = \"comand\"\n"), "x.toml:6:15", "did you mean 'command'?");
  refused(group("provisioner = \"process\"\nreplicas = 2\nmaximum = 3\n"), "x.toml:7:12", "engines in the run's own");
  refused(group("provisioner = \"process\"\n"), "x.toml:6:15", "may have no replica");
  refused(group("provisioner = \"command\"\nmaximum = 2\n"), "x.toml:6:15", "without samplers.0.start");
  refused(group("stop = [\"a\"]\n"), "x.toml:6:8", "with provisioner = \"inproc\"");
  const auto with = [](std::string from, const std::string& to) {
    std::string text = group(kCommands);
    return text.replace(text.find(from), from.size(), to);
  };
  refused(with("\"on\", \"{instance}\"", "\"on\", \"{instanze}\""), "x.toml:8:9", "did you mean 'instance'?");
  refused(with("\"on\", \"{instance}\"", "\"on\""), "x.toml:8:9", "does not say which instance");
  refused(with("\"off\", \"{instance}\"", "\"off\""), "x.toml:9:8", "does not say which instance");
  refused(with("\"ls\"", "\"ls\", \"{instance}\""), "x.toml:10:8", "has a place {instance}");
  refused(with("\"ls\"", ""), "x.toml:10:8", "a list of at least one text");
  refused(with("\"ls\"", "\"ls\", 3"), "x.toml:10:15", "samplers.0.list[1]");
}

std::string resolved(const std::string& text) {
  const TemporaryFolder folder;
  return experiment_to_toml(load_experiment({folder.write("x.toml", text), {}, ""}));
}

TEST_CASE("an autoscaler is printed as it is resolved, and not at all where there is none", "[autoscaler]") {
  const std::string with = resolved(group(kCommands, "[autoscaler]\nhost = \"h\"\n"));
  CHECK(resolved(with) == with);
  for (const std::string line :
       {"replicas = 0\n", "maximum = 2\n", "provisioner = \"command\"\nstart = [\"on\", \"{instance}\"]\n",
        "call_seconds = 60.0\n", "[autoscaler]\nevery_seconds = 30.0\n", "host = \"h\"\n"}) {
    CAPTURE(line);
    CHECK(with.find(line) != std::string::npos);
  }
  const std::string without = resolved(group("", ""));
  CHECK(without.find("autoscaler") == std::string::npos);
  CHECK(without.find("provisioner") == std::string::npos);
  CHECK(without.find("seconds") == std::string::npos);
}

TEST_CASE("every recipe of docs/fleet.md is an experiment's", "[autoscaler]") {
  std::ifstream in(kSource / "docs/fleet.md");
  std::string recipe;
  size_t recipes = 0;
  bool inside = false;
  for (std::string line; std::getline(in, line);) {
    if (inside && line == "```") {
      CAPTURE(recipe);
      CHECK(refusal("name = \"x\"\n" + kBegin + recipe) == "accepted");
      recipe.clear();
      ++recipes;
    } else if (inside) {
      recipe += line + "\n";
    }
    if (line.starts_with("```")) inside = line == "```toml";
  }
  CHECK(recipes == 3);
}

/// A run whose only samplers are processes: two at least, until `updates` are done.
std::string processes(int updates) {
  return "name = \"procs\"\n[run]\nupdates = " + std::to_string(updates) + "\nconcurrency = 16\n" + model_section(16) +
         "[[tasks]]\nenv = \"arithmetic\"\ndigits = 1\n[sampling]\nmax_tokens = 4\n"
         "[algo]\ncorrection = \"sc+mis\"\nprompts = 2\ngroup_size = 4\n[eval]\nprompts = 1\nevery = 1000000\n"
         "[[samplers]]\nname = \"here\"\nmax_sequences = 8\nprovisioner = \"process\"\nminimum = 2\nmaximum = 2\n"
         "price_per_hour = 1.5\n[autoscaler]\nevery_seconds = 1\n";
}

/// Living processes that were started as instances of this run.
std::vector<pid_t> instances() {
  std::vector<pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (!std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c); })) continue;
    std::ifstream in(entry.path() / "cmdline");
    std::string words;
    std::getline(in, words);
    if (words.find(std::string("--instance\0procs-0-here-", 24)) == std::string::npos) continue;
    if (words.find(MOTLEY_BINARY) != std::string::npos) found.push_back(std::stoi(name));
  }
  return found;
}

bool soon(const std::function<bool()>& condition) {
  for (int i = 0; i < 6000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

TEST_CASE("samplers that are processes are started, train the run, and are gone after it", "[autoscaler]") {
  const TemporaryFolder folder;
  folder.write("x.toml", processes(3));
  const Ended ended = run_binary(folder, {"run", "x.toml", "--listen", "127.0.0.1:0", "--json"});
  CAPTURE(ended.err);
  REQUIRE(ended.code == 0);
  CHECK(ended.err.find("autoscaler: starts 2 of group here, which has 0: its minimum") != std::string::npos);
  CHECK(instances().empty());
  const auto summary = nlohmann::json::parse(ended.out);
  CHECK(summary["updates"] == 3);
  CHECK(summary["groups"][0]["cost"] > 0.0);
}

TEST_CASE("kill -9 on a run leaves no sampler of its own", "[autoscaler]") {
  const TemporaryFolder folder;
  folder.write("x.toml", processes(1000000));
  Binary binary(folder, {"run", "x.toml", "--listen", "127.0.0.1:0"});
  REQUIRE(soon([&] { return folder.read("stderr").find("here/1") != std::string::npos && instances().size() == 2; }));
  binary.signal(SIGKILL);
  binary.wait();
  CHECK(soon([] { return instances().empty(); }));
}

TEST_CASE("a group of processes needs somewhere to join", "[autoscaler]") {
  const TemporaryFolder folder;
  folder.write("x.toml", processes(1));
  require_refused(run_binary(folder, {"run", "x.toml"}), "give --listen HOST:PORT");
}

TEST_CASE("the shipped fleet that scales runs", "[autoscaler]") {
  const TemporaryFolder folder;
  const Ended ended = run_binary(folder, run_arguments((kSource / "experiments/fleets/autoscaled.toml").string(),
                                                       {"run.updates=3", "run.concurrency=32", "warmstart.steps=10",
                                                        "warmstart.batch=16", "algo.prompts=4", "algo.group_size=4",
                                                        "model.layers=1", "model.width=32", "eval.prompts=2"}));
  CAPTURE(ended.err);
  REQUIRE(ended.code == 0);
  CHECK(folder.read("runs/autoscaled-0/experiment.toml").find("[autoscaler]\nevery_seconds = 1.0\n") !=
        std::string::npos);
}

}  // namespace
}  // namespace motley::app
