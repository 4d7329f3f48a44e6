// motley simulate: what a FLEET.toml may say, what comes out, and that docs/fleet.md says the same.
#include <catch2/catch.hpp>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "actors/simulation/simulation.h"
#include "app/fleet_toml.h"
#include "tests/app/binary.h"

namespace motley::app {
namespace {

const std::filesystem::path kCheckout = MOTLEY_SOURCE_DIR;

/// The message of a refusal, without the folder.
std::string refusal(const std::string& text) {
  const TemporaryFolder folder;
  try {
    load_fleet(folder.write("x.toml", text), std::nullopt);
  } catch (const InputError& error) {
    const std::string message = error.what();
    return message.substr(message.find("x.toml"));
  }
  return "accepted";
}

const std::string kGroup = "[[samplers]]\nname = \"a\"\n";  // two lines

nlohmann::json simulated(const TemporaryFolder& folder, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "simulate");
  arguments.emplace_back("--json");
  const Ended ended = run_binary(folder, arguments);
  CAPTURE(ended.err);
  REQUIRE(ended.code == 0);
  CHECK(ended.err.empty());
  return nlohmann::json::parse(ended.out);
}

}  // namespace

TEST_CASE("a FLEET.toml: mistakes are refused with line, reason and the nearest name") {
  const std::vector<std::tuple<std::string, std::string, std::string>> table{
      {"", "x.toml:1:1", "no [[samplers]]"},
      {"[[sampler]]\nname = \"a\"\n", "x.toml:1:3", "did you mean 'samplers'?"},
      {kGroup + "price = 3\n", "x.toml:3:1", "unknown key 'price' in [[samplers]]"},
      {kGroup + "[run]\nupdate = 3\n", "x.toml:4:1", "did you mean 'updates'?"},
      {kGroup + "[run]\nupdates = 0\n", "x.toml:4:11", "an integer of at least 1"},
      {kGroup + "tokens_per_second = nan\n", "x.toml:3:21", "a number of above 0"},
      {kGroup + "tokens_per_second = \"fast\"\n", "x.toml:3:21", "the text \"fast\""},
      {kGroup + "replicas = 100001\n", "x.toml:3:12", "at most 100000"},
      {kGroup + "replicas = 60000\n[[samplers]]\nname = \"b\"\nreplicas = 60000\n", "x.toml:1:", "120000 replicas"},
      {kGroup + "replicas = 0\n", "x.toml:1:", "no group has a replica"},
      {kGroup + kGroup, "x.toml:4:8", "two sampler groups are named 'a'"},
      {"[[samplers]]\nreplicas = 1\n", "x.toml:1:1", "without a name"},
      {"samplers = 3\n", "x.toml:1:1", "samplers is the integer 3"},
      {kGroup + "[run]\nconcurrency = 100\n", "x.toml:4:15", "at least 1024"},
      {kGroup + "[run]\nrouting = \"random\"\n", "x.toml:4:11", "\"capacity\", \"least_loaded\", \"round_robin\""},
      {kGroup + "capacity = 0.5\n[run]\nrouting = \"round_robin\"\n", "x.toml:3:12", "only run.routing = \"capacity\""},
      {kGroup + "alone_tokens_per_second = 1.0\n", "x.toml:3:27", "no slower than among others (3.90625)"},
      {kGroup + "alone_tokens_per_second = 2000\n", "x.toml:3:27", "no faster than all of them together"},
      {kGroup + "maximum = 3\n", "x.toml:3:11", "a maximum without an autoscaler"},
      {kGroup + "minimum = 4\nmaximum = 3\n[autoscaler]\n", "x.toml:3:11", "at least 4 and at most 3"},
      {kGroup + "[autoscaler]\nspare_idle = 0.1\n", "x.toml:3:2", "must rise in this order"},
      {kGroup + "price_per_hour = 3\n[autoscaler]\nbudget_per_hour = 2\n", "x.toml:5:19",
       "the minima of the groups cost 3"},
      {kGroup + "[compare]\nhomogeneous = [\"b\"]\n", "x.toml:4:15", "there is no sampler group 'b'"},
      {kGroup + "[compare]\nreplicas = 2\n", "x.toml:4:12", "without compare.homogeneous"},
      {kGroup + "[episodes]\nreplies = []\n", "x.toml:4:11", "a list of at least one integer"},
  };
  for (const auto& [toml, where, part] : table) {
    CAPTURE(toml);
    const std::string message = refusal(toml);
    CAPTURE(message);
    CHECK(message.starts_with(where));
    CHECK(message.find(part) != std::string::npos);
    CHECK(message.find('\n') == std::string::npos);
  }
  CHECK(refusal(kGroup + "[episodes]\nreplies = [3, 3, 5]\n") == "accepted");
  CHECK(refusal(kGroup + "minimum = 0\nmaximum = 5\nreplicas = 0\n[autoscaler]\n") == "accepted");
}

TEST_CASE("motley simulate: the same output for the same seed, 2 for wrong input") {
  const TemporaryFolder folder;
  folder.write(
      "fleet.toml",
      "name = \"two\"\n[run]\nupdates = 5\nwarmup_updates = 1\nconcurrency = 64\n[learner]\nprompts = 4\n"
      "group_size = 4\n[[samplers]]\nname = \"a\"\nmax_sequences = 16\nprice_per_hour = 2\n"
      "[[samplers]]\nname = \"b\"\nreplicas = 2\nmax_sequences = 8\n[compare]\nhomogeneous = [\"a\", \"b\"]\n");
  const nlohmann::json first = simulated(folder, {"fleet.toml"});
  CHECK(first == simulated(folder, {"fleet.toml", "--seed", "0"}));
  CHECK(first.at("seconds") != simulated(folder, {"fleet.toml", "--seed", "1"}).at("seconds"));
  CHECK(first.at("updates") == 5);
  CHECK(first.at("groups").size() == 2);
  CHECK(first.at("homogeneous").at(0).at("replicas") == 3);
  const Ended text = run_binary(folder, {"simulate", "fleet.toml"});
  CHECK(text.code == 0);
  for (const char* part : {"two: 3 replicas in 2 groups", "5 updates in", "staleness of samples: mean", "only a"})
    CHECK(text.out.find(part) != std::string::npos);
  CHECK(run_binary(folder, {"simulate", "none.toml"}).code == 2);
  CHECK(run_binary(folder, {"simulate"}).code == 2);
}

TEST_CASE("article.toml: the groups have the published shares, and samples the published age") {
  simulation::FleetPlan plan = load_fleet(kCheckout / "experiments/fleets/article.toml", std::nullopt);
  CHECK(simulation::homogeneous(plan, "b200-bf16").samplers[0].replicas == 42);
  plan.run.updates = 4;
  plan.run.warmup_updates = 5;
  const simulation::Result result = simulation::simulate(plan);
  std::map<std::string, double> share;
  for (const simulation::GroupResult& group : result.groups) share[group.name] = group.share;
  CHECK(share.at("h100-fp8") == Approx(0.10).margin(0.015));
  CHECK(share.at("b200-nvfp4") + share.at("b300-nvfp4") == Approx(0.47).margin(0.015));
  CHECK(share.at("b200-bf16") == 0.0);
  CHECK(simulation::mean(result.staleness) == Approx(4.0).margin(1.0));  // "about 4"
}

TEST_CASE("docs/fleet.md has the tables of motley schema fleet") {
  std::ifstream in(kCheckout / "docs/fleet.md");
  std::ostringstream text;
  text << in.rdbuf();
  CHECK(text.str().find(fleet_tables()) != std::string::npos);
}

}  // namespace motley::app
