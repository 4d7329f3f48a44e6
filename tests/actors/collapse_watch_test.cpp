// Each alarm on made-up histories, and none on a healthy run's.
#include "actors/policy/collapse_watch.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <set>
#include <sstream>

#include "kernels/philox.h"

namespace motley::actors {
namespace {

/// A calm row of the update: noise of a few percent, nothing else.
algos::Metrics calm(uint64_t update) {
  kernels::RandomStream random({7, kernels::Purpose::data, update, 0});
  const auto noise = [&] { return 1.0 + 0.1 * (static_cast<double>(random.below(1000)) / 1000.0 - 0.5); };
  return {{"samples/count", 64.0},
          {"version", static_cast<double>(update)},
          {"reward/mean", 0.5 * noise()},
          {"kl/k3", 2e-3 * noise()},
          {"staleness/max", static_cast<double>(std::min<uint64_t>(update, 4))},
          {"episode/format_error", 0.1 * noise()},
          {"grad_norm", 0.3 * noise()},
          {"mass/log_tail_ratio_median", 0.2 * noise()}};
}

struct Raised {
  uint64_t update;
  Alarm alarm;
};
/// Runs `updates` rows, changed by `change`, and collects what is raised.
template <class Change>
std::vector<Raised> history(CollapseWatch& watch, uint64_t updates, Change change, uint64_t first = 1) {
  std::vector<Raised> raised;
  for (uint64_t update = first; update < first + updates; ++update) {
    algos::Metrics row = calm(update);
    change(update, row);
    for (Alarm& alarm : watch.observe(row)) raised.push_back({update, std::move(alarm)});
  }
  return raised;
}
template <class Change>
std::vector<Raised> history(uint64_t updates, Change change, const WatchOptions& options = {}, int64_t warmup = 0) {
  CollapseWatch watch(options, warmup);
  return history(watch, updates, change);
}

TEST_CASE("a calm run raises nothing, and every row says so") {
  CollapseWatch watch({}, 0);
  for (uint64_t update = 1; update <= 300; ++update) {
    algos::Metrics row = calm(update);
    CHECK(watch.observe(row).empty());
    for (const char* name : {"reward", "kl", "format_error", "grad_norm", "tail_ratio"})
      CHECK(row.at(std::string("alarm/") + name) == 0.0);
  }
  algos::Metrics start{{"version", 0.0}, {"eval/pass_at_1", 0.5}};
  const algos::Metrics before = start;
  CHECK(watch.observe(start).empty());
  CHECK(start == before);
}

TEST_CASE("reward falls: raised once, lowered when it is back, raised again") {
  CollapseWatch watch({}, 0);
  const auto fall = [](uint64_t update, algos::Metrics& row) {
    const bool low = (update > 100 && update <= 150) || update > 200;
    if (low) row["reward/mean"] *= 0.5;
  };
  const std::vector<Raised> raised = history(watch, 250, fall);
  REQUIRE(raised.size() == 2);
  CHECK(raised[0].alarm.name == "reward");
  CHECK(raised[0].alarm.action == "warn");
  CHECK(raised[0].alarm.cause.find("fell from 0.5") != std::string::npos);
  CHECK(raised[0].update > 108);  // half the window at half the reward: a quarter
  CHECK(raised[0].update < 115);
  CHECK(raised[1].update > 208);
}

TEST_CASE("reward: a fall within its noise, a small one, or from a negative best by less, is none") {
  const auto noisy = [](uint64_t update, algos::Metrics& row) {
    kernels::RandomStream random({9, kernels::Purpose::data, update, 0});
    row["reward/mean"] = random.below(10) == 0 ? 1.0 : 0.0;  // a sparse reward: windows of means 0 to 0.3
  };
  CHECK(history(1000, noisy).empty());
  CHECK(history(200, [](uint64_t u, auto& row) { row["reward/mean"] *= u > 100 ? 0.8 : 1.0; }).empty());
  CHECK(history(200, [](uint64_t u, auto& row) { row["reward/mean"] = u > 100 ? -1.2 : -1.0; }).empty());
  CHECK(history(200, [](uint64_t u, auto& row) { row["reward/mean"] = u > 100 ? -1.3 : -1.0; }).size() == 1);
}

TEST_CASE("reward: a collapse before the first window is full is one too, and a start is none") {
  for (const uint64_t from : {6u, 9u, 15u, 19u}) {
    CAPTURE(from);
    const auto fall = [&](uint64_t u, algos::Metrics& row) { row["reward/mean"] *= u > from ? 0.2 : 1.0; };
    const std::vector<Raised> raised = history(150, fall);
    REQUIRE(raised.size() == 1);
    CHECK(raised[0].alarm.name == "reward");
    CHECK(raised[0].update > from);
    CHECK(raised[0].update <= from + 20);
  }
  CHECK(history(60, [](uint64_t u, auto& row) { row["reward/mean"] *= u > 9 ? 0.8 : 1.0; }).empty());
  CHECK(history(60, [](uint64_t u, auto& row) {
          row["reward/mean"] = std::min(0.05 * static_cast<double>(u), 0.5);
        }).empty());
  // Rewards of single episodes: the first few are all 1 in one run of thirty.
  for (uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    const auto coin = [&](uint64_t update, algos::Metrics& row) {
      kernels::RandomStream random({seed, kernels::Purpose::data, update, 1});
      row["reward/mean"] = random.below(2) == 0 ? 1.0 : 0.0;
    };
    CHECK(history(40, coin).empty());
  }
}

TEST_CASE("kl: three times its level, which is taken at full age") {
  const auto rise = [](double factor) {
    return [factor](uint64_t update, algos::Metrics& row) {
      if (update <= 3) row["kl/k3"] = 1e-5;  // weights are young: not the level
      if (update > 100) row["kl/k3"] *= factor;
    };
  };
  const std::vector<Raised> raised = history(150, rise(3.5));
  REQUIRE(raised.size() == 1);
  CHECK(raised[0].alarm.name == "kl");
  CHECK(raised[0].update == 111);  // the median of 20 follows after 11
  CHECK(history(150, rise(2.5)).empty());
  // One ratio that blows k3 up for an update is no level.
  CHECK(history(150, [](uint64_t u, auto& row) { row["kl/k3"] = u % 10 == 0 ? 1e6 : row["kl/k3"]; }).empty());
  // While age still grows there is no level; it comes 20 updates after the last record.
  const auto aging = [](uint64_t update, algos::Metrics& row) {
    row["staleness/max"] = static_cast<double>(std::min<uint64_t>(update / 5, 20));
    row["kl/k3"] *= row["staleness/max"];
  };
  CHECK(history(300, aging).empty());
  // Nor while the learning rate rises.
  const auto warming = [](uint64_t update, algos::Metrics& row) { row["kl/k3"] *= update <= 60 ? 1.0 : 5.0; };
  CHECK(history(150, warming, {}, 60).empty());
  CHECK(history(150, warming, {}, 0).size() == 1);
  // The bitwise zero has a level too.
  CHECK(history(150, [](uint64_t, auto& row) { row["kl/k3"] = 0.0; }).empty());
  CHECK(history(150, [](uint64_t u, auto& row) { row["kl/k3"] = u > 100 ? 1e-5 : 0.0; }).size() == 1);
}

TEST_CASE("format errors above one half, once they have been below") {
  const auto errors = [](double before, double after) {
    return [=](uint64_t u, algos::Metrics& row) { row["episode/format_error"] = u > 100 ? after : before; };
  };
  const std::vector<Raised> raised = history(150, errors(0.1, 0.6));
  REQUIRE(raised.size() == 1);
  CHECK(raised[0].alarm.name == "format_error");
  CHECK(history(150, errors(0.1, 0.49)).empty());
  CHECK(history(150, errors(0.9, 0.6)).empty());  // a model that is still learning the format
  CHECK(history(150, errors(0.9, 0.1)).empty());
}

TEST_CASE("grad_norm: ten times the highest level before, in one update") {
  const auto leap = [](double factor) {
    return [factor](uint64_t u, algos::Metrics& row) { row["grad_norm"] *= u == 100 ? factor : 1.0; };
  };
  const std::vector<Raised> raised = history(150, leap(12.0));
  REQUIRE(raised.size() == 1);
  CHECK(raised[0].alarm.name == "grad_norm");
  CHECK(raised[0].update == 100);
  CHECK(history(150, leap(9.0)).empty());
  // Solved prompts leave gradients near 0: a normal one after them is no leap.
  CHECK(history(150, [](uint64_t u, auto& row) { row["grad_norm"] *= u > 50 && u % 30 ? 1e-3 : 1.0; }).empty());
  // A slow rise is learning.
  CHECK(
      history(400, [](uint64_t u, auto& row) { row["grad_norm"] *= std::exp(0.02 * static_cast<double>(u)); }).empty());
}

TEST_CASE("tail_ratio: the median beyond its band, on either side") {
  const auto tail = [](double ratio) {
    return [ratio](uint64_t u, algos::Metrics& row) {
      if (u > 100) row["mass/log_tail_ratio_median"] = std::log(ratio);
    };
  };
  for (const double ratio : {5.5, 1.0 / 5.5}) {
    const std::vector<Raised> raised = history(150, tail(ratio));
    REQUIRE(raised.size() == 1);
    CHECK(raised[0].alarm.name == "tail_ratio");
  }
  CHECK(history(150, tail(4.5)).empty());
  CHECK(history(150, tail(1.0 / 4.5)).empty());
}

TEST_CASE("thresholds, window and actions are the options'") {
  WatchOptions options;
  options.window = 4;
  options.grad_norm = "stop";
  options.kl = "off";
  options.kl_factor = 1.01;
  options.grad_norm_factor = 2.0;
  CollapseWatch watch(options, 0);
  const auto change = [](uint64_t u, algos::Metrics& row) {
    row["grad_norm"] *= u == 10 ? 3.0 : 1.0;
    row["kl/k3"] *= static_cast<double>(u);
  };
  const std::vector<Raised> raised = history(watch, 20, change);
  REQUIRE(raised.size() == 1);
  CHECK(raised[0].update == 10);
  CHECK(raised[0].alarm.action == "stop");
  algos::Metrics row = calm(21);
  watch.observe(row);
  CHECK(!row.contains("alarm/kl"));
  CHECK(row.contains("alarm/reward"));
}

TEST_CASE("a metric that is missing or no number leaves its alarm as it is") {
  CollapseWatch watch({}, 0);
  const auto change = [](uint64_t u, algos::Metrics& row) {
    if (u > 100) row["reward/mean"] = 0.1;
    if (u > 130 && u % 2) row.erase("reward/mean");
    if (u > 130 && u % 2 == 0) row["reward/mean"] = std::nan("");
    if (u > 50) row["grad_norm"] = HUGE_VAL;
  };
  CHECK(history(watch, 150, change).size() == 1);
  algos::Metrics row{{"samples/count", 1.0}};
  CHECK(watch.observe(row).empty());
  CHECK(row.at("alarm/reward") == 1.0);
  CHECK(row.at("alarm/kl") == 0.0);
}

TEST_CASE("the watch goes on from its state as if it had never stopped") {
  const auto change = [](uint64_t u, algos::Metrics& row) {
    if (u > 60) row["kl/k3"] *= 4.0;
    if (u > 95) row["reward/mean"] *= 0.5, row["episode/format_error"] = 0.7;
    if (u % 50 == 0) row["grad_norm"] *= 20.0;
  };
  CollapseWatch whole({}, 0);
  history(whole, 200, change);
  for (const uint64_t cut : {1u, 19u, 64u, 101u, 110u}) {
    CAPTURE(cut);
    CollapseWatch first({}, 0), second({}, 0);
    std::vector<Raised> raised = history(first, cut, change);
    second.restore(first.state());
    CHECK(second.state() == first.state());
    const std::vector<Raised> after = history(second, 200 - cut, change, cut + 1);
    CHECK(second.state() == whole.state());
    CHECK(raised.size() + after.size() == 7);  // four leaps, kl, reward, format errors
  }
  CollapseWatch watch({}, 0);
  const std::string good = watch.state();
  for (const std::string& bad : {std::string("x"), std::string(), good.substr(0, good.size() / 2),
                                 std::string("reward 0 0 0 0 1e300 1"), std::string("reward nan 0 0 0 0")}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(watch.restore(bad), std::invalid_argument);
    CHECK(watch.state() == good);
  }
}

TEST_CASE("the quickstart raises no alarm") {
  std::ifstream in(MOTLEY_SOURCE_DIR "/tests/actors/quickstart_metrics.csv");
  std::string line, cell;
  std::getline(in, line);
  std::getline(in, line);
  std::vector<std::string> names;
  for (std::istringstream cells(line); std::getline(cells, cell, ',');) names.push_back(cell);
  REQUIRE(names.size() == 6);
  CollapseWatch watch({}, 0);
  int rows = 0;
  for (; std::getline(in, line); ++rows) {
    algos::Metrics row{{"samples/count", 256.0}};
    std::istringstream cells(line);
    for (const std::string& name : names)
      if (std::getline(cells, cell, ',') && !cell.empty()) row[name] = std::stod(cell);
    for (const Alarm& alarm : watch.observe(row)) FAIL_CHECK(alarm.name << " in row " << rows << ": " << alarm.cause);
  }
  CHECK(rows == 240);
}

}  // namespace
}  // namespace motley::actors
