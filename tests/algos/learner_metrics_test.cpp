// Metrics from per-token scores, by hand.
#include "algos/learner_metrics.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

namespace motley::algos {
namespace {

TEST_CASE("equal log-probabilities give exactly 0 and exactly 1") {
  const RatioStatistics s = ratio_statistics(std::vector<double>(7, 0.0));
  CHECK(s.kl == 0.0);
  CHECK(!std::signbit(s.kl));
  CHECK(s.k3 == 0.0);
  CHECK(s.max == 1.0);
  CHECK(s.ess == 1.0);
  CHECK(s.outside == 0.0);
}

TEST_CASE("ratio statistics by hand") {
  const std::vector<double> x{std::log(2.0), std::log(0.5), std::log(6.0), std::log(0.1), 0.0};
  const RatioStatistics s = ratio_statistics(x);
  CHECK(s.kl == Approx(-std::log(0.6) / 5.0));
  CHECK(s.k3 == Approx((2.0 + 0.5 + 6.0 + 0.1 + 1.0 - 5.0 - std::log(0.6)) / 5.0));
  CHECK(s.outside == Approx(0.4));
  CHECK(s.max == Approx(6.0));
  CHECK(s.ess == Approx(9.6 * 9.6 / (5.0 * (4.0 + 0.25 + 36.0 + 0.01 + 1.0))));
}

TEST_CASE("k3 keeps its digits near a ratio of 1") {
  const double x = 1e-9;
  // r - 1 - log r = x^2 / 2 + ...; computed as exp(x) - 1 - x it would be of order 1e-16, not 5e-19. expm1(x) - x
  // errs by 1e-16 x.
  CHECK(ratio_statistics(std::vector<double>{x}).k3 == Approx(x * x / 2).epsilon(1e-6));
  const double y = 1e-4;
  CHECK(ratio_statistics(std::vector<double>{y}).k3 == Approx(y * y / 2 + y * y * y / 6).epsilon(1e-7));
}

TEST_CASE("true extremes are reported, and stay finite") {
  const RatioStatistics s = ratio_statistics(std::vector<double>{100.0, 0.0, -100.0});
  CHECK(s.max == std::exp(100.0));
  CHECK(s.k3 == Approx(std::exp(100.0) / 3.0));
  CHECK(s.kl == 0.0);
  CHECK(s.ess == Approx(1.0 / 3.0));
  CHECK(s.outside == Approx(2.0 / 3.0));
  const RatioStatistics huge = ratio_statistics(std::vector<double>{2000.0, -3000.0});
  CHECK(huge.max == std::numeric_limits<double>::max());
  CHECK(huge.k3 == std::numeric_limits<double>::max());
  CHECK(huge.ess == 0.5);
}

Trajectory sample(const char* sampler, uint64_t group, double reward, std::vector<uint64_t> versions) {
  Trajectory t;
  t.sampler = sampler;
  t.group = group;
  t.reward = reward;
  t.reward_parts = {{"correct", reward}};
  t.batch_version = 10;
  t.records.tokens.assign(versions.size(), 0);
  t.records.versions = std::move(versions);
  return t;
}

TEST_CASE("metrics of a batch by hand") {
  std::vector<Trajectory> batch{sample("x", 1, 1.0, {9, 7}), sample("y", 1, 0.0, {10}),
                                sample("x", 1, 0.5, {10, 10, 9})};
  batch[1].format_error = true;
  batch[2].truncated = true;
  batch[2].turns = 3;
  SampleSelection selection;
  selection.kept = {0, 1, 2};
  selection.groups = {{0, 1, 2}};
  BatchScores scores(3);
  scores.samples[0] = {{0.0, std::log(2.0)}, {1.0, 2.0}, {0, 0}};
  scores.samples[1] = {{std::log(7.0)}, {3.0}, {1}};
  scores.samples[2] = {{0.0, 0.0, 0.0}, {0.0, 0.0, 0.0}, {0, 0, 0}};
  for (int i = 1; i <= 200; ++i) scores.further["sc/tail_ratio"].push_back(i);
  const Metrics m = batch_metrics(batch, selection, scores);
  const std::map<std::string, double> expected{
      {"reward/mean", 0.5},
      {"reward/correct", 0.5},
      {"samples/count", 3},
      {"samples/failed", 0},
      {"samples/dropped_nan", 0},
      {"advantage/zero_groups", 0},
      {"kl/sampler_trainer", -std::log(14.0) / 6},
      {"ratio/max", 7},
      {"ratio/outside", 1.0 / 6},
      {"ratio/masked", 1.0 / 6},
      {"entropy", 1},
      {"staleness/mean", 4.0 / 3},
      {"staleness/max", 3},
      {"staleness/token_mean", 5.0 / 6},
      {"episode/tokens", 2},
      {"episode/turns", 5.0 / 3},
      {"episode/format_error", 1.0 / 3},
      {"episode/truncated", 1.0 / 3},
      {"sc/tail_ratio_median", 100},
      {"sc/tail_ratio_p99", 198},
      {"group/x/share", 2.0 / 3},
      {"group/x/reward/mean", 0.75},
      {"group/x/kl/sampler_trainer", -std::log(2.0) / 5},
      {"group/x/ratio/max", 2},
      {"group/x/ratio/outside", 0},
      {"group/x/staleness/mean", 2},
      {"group/x/episode/tokens", 2.5},
      {"group/y/share", 1.0 / 3},
      {"group/y/ratio/outside", 1},
      {"group/y/staleness/mean", 0},
  };
  for (const auto& [name, value] : expected) {
    CAPTURE(name);
    REQUIRE(m.contains(name));
    CHECK(m.at(name) == Approx(value));
  }
  CHECK(m.contains("ess"));
  CHECK(m.contains("kl/k3"));
  CHECK(!m.contains("group/x/ess"));
}

TEST_CASE("a batch of which nothing is left has counts and no means") {
  const std::vector<Trajectory> batch(2);
  SampleSelection selection;
  selection.failed = 2;
  const Metrics m = batch_metrics(batch, selection, BatchScores(2));
  CHECK(m == Metrics{{"samples/count", 2}, {"samples/failed", 2}, {"samples/dropped_nan", 0}});
}

}  // namespace
}  // namespace motley::algos
