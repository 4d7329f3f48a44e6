#include "algos/sample_selection.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "algos/advantage.h"

namespace motley::algos {
namespace {

/// -inf is a number for a listed id (probability 0) and for a tail (there is none), not for the drawn token.
bool has_bad_number(const TokenRecords& records) {
  const auto not_a_log = [](float x) { return std::isnan(x) || x == std::numeric_limits<float>::infinity(); };
  return std::any_of(records.log_q.begin(), records.log_q.end(), [](float x) { return !std::isfinite(x); }) ||
         std::any_of(records.id_log_q.begin(), records.id_log_q.end(), not_a_log) ||
         std::any_of(records.log_tail.begin(), records.log_tail.end(), not_a_log);
}

}  // namespace

SampleSelection select_samples(std::span<const Trajectory> batch, int64_t vocabulary, int64_t max_positions) {
  SampleSelection selection;
  selection.advantage.assign(batch.size(), 0.0);
  selection.filtered.assign(batch.size(), 0);
  std::map<uint64_t, size_t> group_index;
  for (size_t i = 0; i < batch.size(); ++i) {
    const Trajectory& sample = batch[i];
    if (!sample.failure.empty() || static_cast<int64_t>(sample.tokens.size()) > max_positions ||
        !sample.inconsistency(vocabulary).empty()) {
      ++selection.failed;
    } else if (has_bad_number(sample.records)) {
      ++selection.dropped_nan;
    } else {
      const auto [place, added] = group_index.emplace(sample.group, selection.groups.size());
      if (added) selection.groups.emplace_back();
      selection.groups[place->second].push_back(i);
      selection.kept.push_back(i);
    }
  }
  return selection;
}

void set_advantages(SampleSelection& selection, std::string_view advantage, std::span<const double> reward,
                    double baseline) {
  const size_t needed = compares_group(advantage) ? 2 : 1;
  for (const std::vector<size_t>& group : selection.groups) {
    bool all_zero = true;
    if (group.size() >= needed) {
      std::vector<double> rewards;
      for (const size_t i : group) rewards.push_back(reward[i]);
      const std::vector<double> values = advantages(advantage, rewards, baseline);
      for (size_t j = 0; j < group.size(); ++j) {
        selection.advantage[group[j]] = values[j];
        all_zero = all_zero && values[j] == 0.0;
      }
    }
    selection.zero_groups += all_zero ? 1 : 0;
  }
}

void filter_truncated(SampleSelection& selection, std::span<const Trajectory> batch) {
  for (const size_t i : selection.kept) {
    if (!batch[i].truncated) continue;
    selection.filtered[i] = 1;
    selection.advantage[i] = 0.0;
  }
}

bool equal_rewards(std::span<const Trajectory* const> group) {
  std::vector<double> rewards;
  for (const Trajectory* sample : group)
    if (sample->failure.empty()) rewards.push_back(sample->reward);
  if (rewards.size() < 2) return true;
  const auto [low, high] = std::minmax_element(rewards.begin(), rewards.end());
  return *low == *high;
}

}  // namespace motley::algos
