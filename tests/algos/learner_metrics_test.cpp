// Metrics from per-token scores, by hand.
#include "algos/learner_metrics.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

namespace motley::algos {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

Trajectory sample(const char* sampler, uint64_t group, double reward, std::vector<uint64_t> versions) {
  Trajectory t;
  t.sampler = sampler;
  t.group = group;
  t.reward = reward;
  t.reward_parts = {{"correct", reward}};
  t.batch_version = 10;
  t.records.tokens.assign(versions.size(), 0);
  t.records.log_q.assign(versions.size(), -2.0f);
  t.records.versions = std::move(versions);
  return t;
}

TEST_CASE("metrics of a batch by hand") {
  std::vector<Trajectory> batch{sample("x", 1, 1.0, {9, 7}), sample("y", 1, 0.0, {10}),
                                sample("x", 1, 0.5, {10, 10, 9})};
  batch[1].format_error = true;
  batch[2].truncated = true;
  batch[2].turns = {{0, 0.0}, {0, 0.0}, batch[2].as_one_turn()};
  SampleSelection selection;
  selection.kept = {0, 1, 2};
  selection.groups = {{0, 1, 2}};
  BatchScores scores(3);
  scores.samples[0] = {{-2.0, -2.0 + std::log(2.0)}, {1.0, 2.0}, {0, 0}, {}, {}};
  scores.samples[1] = {{-2.0 + std::log(7.0)}, {3.0}, {1}, {}, {}};
  scores.samples[2] = {{-2.0, -2.0, -2.0}, {0.0, 0.0, 0.0}, {0, 0, 0}, {}, {}};
  for (int i = 1; i <= 200; ++i) scores.further["ais/mixing"].push_back(i);
  const Metrics m =
      batch_metrics(batch, selection, scores, {.sampler_formats = {{"x", "fp8"}, {"y", "bf16"}, {"absent", "nvfp4"}}});
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
      {"ais/mixing_median", 100},
      {"ais/mixing_p99", 198},
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
      {"group/x/entropy", 0.6},
      {"tokens", 6},
      {"format/fp8/tokens", 5},
      {"format/fp8/kl/sampler_trainer", -std::log(2.0) / 5},
      {"format/bf16/ratio/masked", 1},
      {"staleness/0-1/tokens", 5},
      {"staleness/2-3/tokens", 1},
      {"staleness/0-1/kl/sampler_trainer", -std::log(7.0) / 5},
      {"staleness/2-3/kl/sampler_trainer", -std::log(2.0)},
      // Over samples, not tokens; a sample of two ages is a sample in both buckets.
      {"log_ppl_gap", -1000.0 / 3 * (std::log(2.0) / 2 + std::log(7.0))},
      {"staleness/0-1/log_ppl_gap", -1000.0 / 3 * std::log(7.0)},
      {"staleness/2-3/log_ppl_gap", -1000.0 * std::log(2.0)},
  };
  for (const auto& [name, value] : expected) {
    CAPTURE(name);
    REQUIRE(m.contains(name));
    CHECK(m.at(name) == Approx(value));
  }
  CHECK(m.contains("ess"));
  CHECK(m.contains("kl/k3"));
  for (const char* name : {"format/nvfp4/tokens", "staleness/4-5/tokens", "mass/sampler_tail"})
    CHECK(!m.contains(name));
}

TEST_CASE("endings of interactions add up to 1 with the failed; episodes of another kind have none") {
  std::vector<Trajectory> batch{sample("x", 1, 1.0, {9, 9}), sample("x", 1, 0.0, {9}), sample("x", 1, 0.0, {}),
                                sample("x", 1, 0.5, {9})};
  batch[0].ending = "submitted";
  batch[0].tokens.assign(12, 0);
  batch[0].turns = {{1, 0.0}, {1, 1.0}};
  batch[1].ending = "turn_limit";
  batch[1].tokens.assign(5, 0);
  batch[1].turns = {{1, 0.0}};
  batch[1].format_errors = 1;
  batch[2].ending = "failed";
  batch[2].failure = "the sandbox was lost";
  batch[2].format_errors = 7;
  batch[2].turns = {{0, 0.0}};
  SampleSelection selection;
  selection.kept = {0, 1, 3};
  selection.failed = 1;
  selection.groups = {{0, 1, 3}};
  BatchScores scores(4);
  scores.samples[0] = {{-2.0, -2.0}, {1.0, 1.0}, {0, 0}, {}, {}};
  scores.samples[1] = scores.samples[3] = {{-2.0}, {1.0}, {0}, {}, {}};
  const Metrics m = batch_metrics(batch, selection, scores);
  for (const char* ending : {"submitted", "turn_limit", "failed"})
    CHECK(m.at(std::string("episode/end/") + ending) == Approx(1.0 / 3));
  CHECK(m.at("episode/read_tokens") == Approx((10 + 4) / 2.0));
  CHECK(m.at("reply/format_error") == Approx(1.0 / 3));
  batch.erase(batch.begin(), batch.begin() + 3);
  scores.samples = {scores.samples[3]};
  selection.kept = {0};
  selection.groups = {{0}};
  for (const auto& [name, value] : batch_metrics(batch, selection, scores)) {
    CHECK_FALSE(name.starts_with("episode/end/"));
    CHECK(name != "episode/read_tokens");
    CHECK(name != "reply/format_error");
  }
}

TEST_CASE("tails are told where the sampler has mass outside the record") {
  std::vector<Trajectory> batch{sample("x", 1, 1.0, {9, 9, 9})};
  SampleSelection selection;
  selection.kept = {0};
  selection.groups = {{0}};
  BatchScores scores(1);
  scores.samples[0] = {
      {-2, -2, -2}, {0, 0, 0}, {0, 0, 0}, {std::log(0.1), kNone, std::log(0.1)}, {std::log(0.2), kNone, std::log(0.4)}};
  const Metrics m = batch_metrics(batch, selection, scores);
  CHECK(m.at("mass/sampler_tail") == Approx(0.3));
  CHECK(m.at("mass/trainer_tail") == Approx(0.1));
  CHECK(m.at("mass/sampler_head") == Approx(0.7));
  CHECK(m.at("mass/trainer_head") == Approx(0.9));
  CHECK(m.at("mass/log_tail_ratio_median") == Approx(std::log(2.0)));
  CHECK(m.at("mass/log_tail_ratio_p99") == Approx(std::log(4.0)));
  scores.samples[0].log_q_tail.assign(3, kNone);
  CHECK(!batch_metrics(batch, selection, scores).contains("mass/sampler_tail"));
}

TEST_CASE("the training band is that of masked importance sampling") {
  const auto edges = [](const CorrectionParameters& parameters) {
    const RatioInterval band = training_band(parameters);
    return std::pair(std::exp(band.log_low), std::exp(band.log_high));
  };
  const auto given = edges({{"mis.low", 0.25}, {"mis.high", 4.0}, {"sc.tail", std::string("off")}});
  CHECK(given.first == Approx(0.25));
  CHECK(given.second == Approx(4.0));
  CHECK(edges({{"mis.low", 0.1}}).first == Approx(0.1));
  CHECK(edges({{"mis.low", 0.1}}).second == Approx(5.0));
  for (const CorrectionParameters& other :
       {CorrectionParameters{}, {{"tis.cap", 3.0}}, {{"geo-mask.low", 0.99}, {"geo-mask.high", 1.01}}}) {
    CHECK(edges(other).first == Approx(0.5));
    CHECK(edges(other).second == Approx(5.0));
  }
}

TEST_CASE("staleness buckets") {
  const std::map<uint64_t, std::string> expected{{0, "0-1"}, {1, "0-1"}, {2, "2-3"}, {3, "2-3"},   {4, "4-5"},
                                                 {5, "4-5"}, {6, "6+"},  {7, "6+"},  {~0ull, "6+"}};
  for (const auto& [versions, bucket] : expected) CHECK(staleness_bucket(versions) == bucket);
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
