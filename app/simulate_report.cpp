#include "app/simulate_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace motley::app {
namespace {

using simulation::GroupResult;
using simulation::mean;
using simulation::quantile;
using simulation::Result;

constexpr int64_t kBars = 12;   // lines of the histogram
constexpr int64_t kWidth = 40;  // of its longest bar

int64_t replicas_of(const simulation::FleetPlan& plan) {
  int64_t count = 0;
  for (const simulation::GroupPlan& group : plan.samplers) count += group.replicas;
  return count;
}

std::string head(const SimulatedFleet& fleet) {
  const simulation::FleetPlan& plan = fleet.plan;
  const Result& result = fleet.result;
  std::string out = fmt::format("{}: {} replicas in {} groups at the start, {} episodes at once, routing {}{}\n",
                                plan.name, replicas_of(plan), plan.samplers.size(), plan.run.concurrency,
                                plan.run.routing, plan.autoscaler.enabled ? ", autoscaled" : "");
  if (!result.stopped.empty()) out += "stopped: " + result.stopped + "\n";
  out += fmt::format("{} updates in {:.2f} simulated hours, {:.5g} s each; the learner waits {:.1f} % of the time\n",
                     result.updates, result.seconds / 3600.0, result.update_seconds, 100 * result.hunger);
  out += fmt::format("{:.5g} tokens/s, {:.4g} episodes/s; {} failed, {} dropped as too old\n", result.tokens_per_second,
                     result.samples_per_second, result.failed, result.dropped);
  out += fmt::format("cost: {:.5g} per hour, {:.5g} per update, {:.4g} per million tokens\n", result.cost_per_hour,
                     result.cost_per_update, result.cost_per_million_tokens);
  return out;
}

std::string group_table(const Result& result) {
  size_t width = 5;
  for (const GroupResult& group : result.groups) width = std::max(width, group.name.size());
  std::string out = fmt::format("\n{:<{}} {:>7} {:>8} {:>9} {:>6} {:>6} {:>9} {:>8} {:>9}\n", "group", width, "share",
                                "replicas", "tokens/s", "idle", "unused", "staleness", "cost/h", "per Mtok");
  for (const GroupResult& group : result.groups) {
    out +=
        fmt::format("{:<{}} {:>6.1f}% {:>8.1f} {:>9.5g} {:>5.1f}% {:>5.1f}% {:>9.2f} {:>8.5g} {:>9.4g}\n", group.name,
                    width, 100 * group.share, group.replicas, group.tokens_per_second, 100 * group.idle_share,
                    100 * group.unused_share, group.staleness, group.cost_per_hour, group.cost_per_million_tokens);
  }
  for (const GroupResult& group : result.groups) {
    if (group.starts + group.stops + group.failures == 0) continue;
    out +=
        fmt::format("{}: {} started, {} stopped, {} failed\n", group.name, group.starts, group.stops, group.failures);
  }
  return out;
}

/// A line per value; the last takes all that is above.
std::string histogram(const Result& result) {
  if (result.samples == 0) return "";
  std::string out = fmt::format(
      "\nstaleness of samples: mean {:.2f}, half <= {}, 90 % <= {}, 99 % <= {}, max {}; of tokens: mean {:.2f}\n",
      mean(result.staleness), quantile(result.staleness, 0.5), quantile(result.staleness, 0.9),
      quantile(result.staleness, 0.99), result.staleness.rbegin()->first, result.token_staleness);
  std::vector<int64_t> counts(static_cast<size_t>(std::min(kBars, result.staleness.rbegin()->first + 1)), 0);
  for (const auto& [age, count] : result.staleness)
    counts[static_cast<size_t>(std::min(age, static_cast<int64_t>(counts.size()) - 1))] += count;
  const int64_t most = *std::max_element(counts.begin(), counts.end());
  for (size_t age = 0; age < counts.size(); ++age) {
    const bool more = age + 1 == counts.size() && result.staleness.rbegin()->first >= kBars;
    const std::string line =
        fmt::format("{:>4}{} {:>5.1f}% {}", age, more ? "+" : " ",
                    100.0 * static_cast<double>(counts[age]) / static_cast<double>(result.samples),
                    std::string(static_cast<size_t>(kWidth * counts[age] / std::max<int64_t>(1, most)), '#'));
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return out;
}

/// Of `value` to the file's fleet, in percent.
double difference(double value, double own) { return own > 0 ? 100.0 * (value / own - 1.0) : 0.0; }

std::string comparison(const std::vector<SimulatedFleet>& fleets) {
  if (fleets.size() < 2) return "";
  size_t width = 5;
  for (const SimulatedFleet& fleet : fleets) width = std::max(width, fleet.plan.samplers[0].name.size() + 9);
  std::string out = fmt::format("\n{:<{}} {:>8} {:>10} {:>9} {:>10} {:>9} {:>11}\n", "fleet", width, "replicas",
                                "s/update", "cost/h", "per update", "per Mtok", "this is");
  const Result& own = fleets[0].result;
  for (size_t i = 0; i < fleets.size(); ++i) {
    const Result& result = fleets[i].result;
    const std::string name = i == 0 ? "this one" : "only " + fleets[i].plan.samplers[0].name;
    const std::string cheaper =
        i == 0 ? "" : fmt::format("{:+.1f} %", difference(own.cost_per_update, result.cost_per_update));
    const std::string line = fmt::format("{:<{}} {:>8} {:>10.5g} {:>9.5g} {:>10.5g} {:>9.4g} {:>11}", name, width,
                                         replicas_of(fleets[i].plan), result.update_seconds, result.cost_per_hour,
                                         result.cost_per_update, result.cost_per_million_tokens, cheaper);
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return out + "this is: cost per update of the file's fleet against that one.\n";
}

nlohmann::json to_json(const SimulatedFleet& fleet) {
  const Result& result = fleet.result;
  nlohmann::json groups = nlohmann::json::array(), ages = nlohmann::json::array();
  for (const GroupResult& group : result.groups)
    groups.push_back({{"name", group.name},
                      {"share", group.share},
                      {"replicas", group.replicas},
                      {"tokens_per_second", group.tokens_per_second},
                      {"idle_share", group.idle_share},
                      {"unused_share", group.unused_share},
                      {"staleness", group.staleness},
                      {"cost_per_hour", group.cost_per_hour},
                      {"cost_per_million_tokens", group.cost_per_million_tokens},
                      {"starts", group.starts},
                      {"stops", group.stops},
                      {"failures", group.failures}});
  for (const auto& [age, count] : result.staleness) ages.push_back({age, count});
  return {{"name", fleet.plan.name},
          {"seed", fleet.plan.seed},
          {"replicas", replicas_of(fleet.plan)},
          {"updates", result.updates},
          {"stopped", result.stopped},
          {"seconds", result.seconds},
          {"update_seconds", result.update_seconds},
          {"tokens_per_second", result.tokens_per_second},
          {"samples_per_second", result.samples_per_second},
          {"samples", result.samples},
          {"failed", result.failed},
          {"dropped", result.dropped},
          {"learner_wait_share", result.hunger},
          {"cost_per_hour", result.cost_per_hour},
          {"cost_per_update", result.cost_per_update},
          {"cost_per_million_tokens", result.cost_per_million_tokens},
          {"staleness",
           {{"mean", mean(result.staleness)},
            {"p50", quantile(result.staleness, 0.5)},
            {"p90", quantile(result.staleness, 0.9)},
            {"p99", quantile(result.staleness, 0.99)},
            {"max", result.staleness.empty() ? 0 : result.staleness.rbegin()->first},
            {"token_mean", result.token_staleness},
            {"counts", ages}}},
          {"groups", groups},
          {"events", result.events}};
}

}  // namespace

std::string simulate_text(const std::vector<SimulatedFleet>& fleets) {
  return head(fleets[0]) + group_table(fleets[0].result) + histogram(fleets[0].result) + comparison(fleets);
}

std::string simulate_json(const std::vector<SimulatedFleet>& fleets) {
  nlohmann::json all = to_json(fleets[0]);
  all["homogeneous"] = nlohmann::json::array();
  for (size_t i = 1; i < fleets.size(); ++i) {
    nlohmann::json other = to_json(fleets[i]);
    other["group"] = fleets[i].plan.samplers[0].name;
    other["cost_difference"] = difference(fleets[0].result.cost_per_update, fleets[i].result.cost_per_update) / 100.0;
    all["homogeneous"].push_back(std::move(other));
  }
  return all.dump() + "\n";
}

}  // namespace motley::app
