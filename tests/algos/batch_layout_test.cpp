// What is asked of the head for each loss token, and which samples are used at all.
#include "algos/batch_layout.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "algos/sample_selection.h"
#include "tests/algos/episodes.h"

namespace motley::algos {
namespace {

constexpr float kNoTail = -HUGE_VALF;
constexpr int64_t kVocabulary = 6;

/// prompt 4 1, answer 2 [observation 5] 3; the second record is a head without the drawn token.
Trajectory episode() {
  Trajectory t;
  t.tokens = {4, 1, 2, 5, 3, 0};
  t.loss_mask = {0, 0, 1, 0, 1, 0};
  t.records.tokens = {2, 3};
  t.records.log_q = {-0.5f, -1.0f};
  t.records.versions = {6, 4};
  t.records.offsets = {0, 2, 4};
  t.records.ids = {1, 2, 1, 5};
  t.records.id_log_q = {-0.9f, -0.5f, -1.5f, -2.5f};
  t.records.log_tail = {-0.7f, -0.8f};
  t.temperature = 0.6;
  return t;
}

TEST_CASE("row i - 1 is asked for loss token i, and nothing is computed after the last") {
  const std::vector<Trajectory> batch{episode(), episode()};
  const std::vector<size_t> both{0, 1};
  const std::vector<std::vector<double>> advantage{{0.5, 0.25}, {-0.5, -0.5}};
  const MicroBatch micro = lay_out(batch, both, advantage, false, kVocabulary);
  CHECK(micro.sequences.ids == std::vector<int32_t>{4, 1, 2, 5, 4, 1, 2, 5});
  CHECK(micro.sequences.positions == std::vector<int32_t>{0, 1, 2, 3, 0, 1, 2, 3});
  CHECK(micro.sequences.starts == std::vector<int32_t>{0, 4, 8});
  CHECK(micro.rows == std::vector<int64_t>{1, 3, 5, 7});
  CHECK(micro.query->selected_ids == std::vector<int32_t>{2, 3, 2, 3});
  CHECK(micro.query->candidate_offsets.empty());
  CHECK(micro.query->temperature == 0.6);
  CHECK(micro.advantage == std::vector<double>{0.5, 0.25, -0.5, -0.5});
  CHECK(lay_out(batch, both, {}, false, kVocabulary).advantage == std::vector<double>(4, 0.0));
  CHECK(micro.sequence == std::vector<int64_t>{0, 0, 1, 1});
  CHECK(micro.log_q == std::vector<double>{-0.5, -1.0, -0.5, -1.0});
}

TEST_CASE("with records the head is asked for the drawn token and every recorded id, ascending") {
  const std::vector<Trajectory> batch{episode()};
  const std::vector<size_t> one{0};
  const std::vector<std::vector<double>> advantage{{1.0, 1.0}};
  const MicroBatch micro = lay_out(batch, one, advantage, true, kVocabulary);
  CHECK(micro.query->selected_ids == std::vector<int32_t>{1, 2, 1, 3, 5});
  CHECK(micro.query->selected_offsets == std::vector<int64_t>{0, 2, 5});
  CHECK(micro.offsets == micro.query->selected_offsets);
  CHECK(micro.sampled == std::vector<int64_t>{1, 3});
  CHECK(micro.in_record == std::vector<uint8_t>{1, 1, 1, 0, 1});
  const std::vector<double> log_q{-0.9f, -0.5f, -1.5f, -1.0f, -2.5f};
  CHECK(micro.log_q == log_q);
  // The drawn token outside the head belongs to the tail.
  const std::vector<double> log_p{-1, -1, -2, std::log(0.125), -2}, outside{std::log(0.25), std::log(0.5)};
  const std::vector<double> tails = tails_outside_records(micro, log_p, outside);
  CHECK(tails[0] == outside[0]);
  CHECK(tails[1] == Approx(std::log(0.625)).epsilon(1e-15));
}

TEST_CASE("tails with nothing left in them") {
  std::vector<Trajectory> batch{episode()};
  const std::vector<size_t> one{0};
  const std::vector<std::vector<double>> advantage{{1.0, 1.0}};
  const MicroBatch micro = lay_out(batch, one, advantage, true, kVocabulary);
  const std::vector<double> log_p{-1, -1, -2, kNoMass, -2}, outside{kNoMass, kNoMass};
  CHECK(tails_outside_records(micro, log_p, outside) == std::vector<double>{kNoMass, kNoMass});
  const std::vector<double> small{-1, -1, -2, -3, -2};
  CHECK(tails_outside_records(micro, small, outside) == std::vector<double>{kNoMass, -3.0});
}

TEST_CASE("truncated sampling is scored over its candidate set; a full record is no truncation") {
  Trajectory truncated = episode();
  truncated.records.ids = {1, 2, 3, 5};
  truncated.records.log_tail = {kNoTail, kNoTail};
  Trajectory full = episode();
  full.records.offsets = {0, 6, 12};
  full.records.ids = {0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5};
  full.records.id_log_q.assign(12, -1.8f);
  full.records.log_tail = {kNoTail, kNoTail};
  const std::vector<Trajectory> batch{truncated, full};
  const std::vector<std::vector<double>> advantage(2, {1.0, 1.0});
  const std::vector<size_t> first{0}, second{1}, both{0, 1};

  for (const bool with_records : {false, true}) {
    const MicroBatch alone = lay_out(batch, first, advantage, with_records, kVocabulary);
    CHECK(alone.query->candidate_ids == std::vector<int32_t>{1, 2, 3, 5});
    CHECK(alone.query->candidate_offsets == std::vector<int64_t>{0, 2, 4});
    CHECK(lay_out(batch, second, advantage, with_records, kVocabulary).query->candidate_offsets.empty());
    const MicroBatch mixed = lay_out(batch, both, advantage, with_records, kVocabulary);
    CHECK(mixed.query->candidate_offsets == std::vector<int64_t>{0, 2, 4, 10, 16});
  }
}

TEST_CASE("a correction that needs records refuses tokens without any") {
  std::vector<Trajectory> batch{episode()};
  batch[0].records.offsets = {0, 0, 0};
  batch[0].records.ids.clear();
  batch[0].records.id_log_q.clear();
  batch[0].sampler = "b200";
  const std::vector<size_t> one{0};
  const std::vector<std::vector<double>> advantage{{1.0, 1.0}};
  CHECK_THROWS_WITH(lay_out(batch, one, advantage, true, kVocabulary), Catch::Matchers::Contains("b200"));
  CHECK_NOTHROW(lay_out(batch, one, advantage, false, kVocabulary));
}

TEST_CASE("micro-batches hold whole sequences, in order, of one temperature") {
  std::vector<Trajectory> batch(5, episode());  // 6 tokens each
  batch[3].temperature = 1.0;
  const std::vector<size_t> all{0, 1, 2, 3, 4};
  using Plan = std::vector<std::vector<size_t>>;
  CHECK(plan_micro_batches(batch, all, 1000) == Plan{{0, 1, 2}, {3}, {4}});
  CHECK(plan_micro_batches(batch, all, 12) == Plan{{0, 1}, {2}, {3}, {4}});
  CHECK(plan_micro_batches(batch, all, 1) == Plan{{0}, {1}, {2}, {3}, {4}});  // at least one
  CHECK(plan_micro_batches(batch, {}, 12).empty());
}

TEST_CASE("failed samples, samples that disagree and samples with NaN are left out and counted") {
  std::vector<Trajectory> batch(8, episode());
  for (size_t i = 0; i < batch.size(); ++i) batch[i].group = i / 4, batch[i].reward = i % 2 ? 1.0 : 0.0;
  batch[0].failure = "reward timed out";
  batch[1].records.log_q[1] = std::nanf("");
  batch[2].tokens.pop_back();
  batch[4].records.log_q[0] = -HUGE_VALF;
  batch[5].records.id_log_q[0] = std::nanf("");
  batch[6].records.id_log_q[0] = -HUGE_VALF;  // a listed id of probability 0 is a fact
  SampleSelection s = select_samples(batch, kVocabulary, 32);
  std::vector<std::vector<Turn>> turns;
  for (const Trajectory& t : batch) turns.push_back(t.all_turns());
  set_advantages(s, "dr_grpo", turns, 0.0);
  CHECK(s.kept == std::vector<size_t>{3, 6, 7});
  CHECK(s.failed == 2);
  CHECK(s.dropped_nan == 3);
  CHECK(s.groups == std::vector<std::vector<size_t>>{{3}, {6, 7}});
  CHECK(s.zero_groups == 1);  // the group that has one sample left trains on nothing
  const std::vector<double> none, zero{0, 0}, low{-0.5, -0.5}, high{0.5, 0.5};
  CHECK(s.advantage == std::vector<std::vector<double>>{none, none, none, zero, none, none, low, high});
  CHECK(select_samples(batch, kVocabulary, 5).failed == 8);  // longer than the model can hold
}

TEST_CASE("a dead group is one of equal task rewards, whatever is added to them") {
  std::vector<Trajectory> group(3, episode());
  const auto dead = [&] {
    std::vector<const Trajectory*> samples;
    for (const Trajectory& t : group) samples.push_back(&t);
    return equal_rewards(samples, false);
  };
  for (Trajectory& t : group) t.reward = 0.7;
  group[0].reward_parts = {{"format", 1.0}};  // parts, length and ends are not what is compared
  group[1].truncated = true;
  group[2].records.tokens.clear();
  CHECK(dead());
  group[1].reward = 0.8;
  CHECK(!dead());
  group[1].failure = "no reward";  // then it says nothing
  CHECK(dead());
  group[0].failure = "no reward";  // one alone has nothing to be compared with
  CHECK(dead());
  group[2].failure = "no reward";
  CHECK(dead());
  CHECK(equal_rewards({}, false));
  CHECK(equal_rewards({}, true));
}

TEST_CASE("a filtered sample stays in its group's comparison") {
  std::vector<Trajectory> batch(4, episode());
  for (Trajectory& t : batch) t.group = 1;
  batch[2].truncated = true;
  SampleSelection s = select_samples(batch, kVocabulary, 32);
  const std::vector<Turn> right{{2, 1.0}}, wrong{{2, 0.0}};
  set_advantages(s, "dr_grpo", std::vector<std::vector<Turn>>{right, wrong, wrong, wrong}, 0.0);
  filter_truncated(s, batch);
  const std::vector<double> high{0.75, 0.75}, low{-0.25, -0.25}, none{0.0, 0.0};
  CHECK(s.advantage == std::vector<std::vector<double>>{high, low, none, low});
  CHECK(s.filtered == std::vector<uint8_t>{0, 0, 1, 0});
  CHECK(s.kept.size() == 4);
}

}  // namespace
}  // namespace motley::algos
