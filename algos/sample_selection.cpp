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

/// What a sample earned from each of its turns on.
std::vector<double> returns_to_go(std::span<const Turn> turns) {
  std::vector<double> returns(turns.size());
  double sum = 0.0;
  for (size_t k = turns.size(); k-- > 0;) returns[k] = sum += turns[k].reward;
  return returns;
}

}  // namespace

SampleSelection select_samples(std::span<const Trajectory> batch, int64_t vocabulary, int64_t max_positions) {
  SampleSelection selection;
  selection.advantage.resize(batch.size());
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
      selection.advantage[i].assign(sample.records.size(), 0.0);
    }
  }
  return selection;
}

void set_advantages(SampleSelection& selection, std::string_view advantage, std::span<const std::vector<Turn>> turns,
                    double baseline) {
  const size_t needed = compares_group(advantage) ? 2 : 1;
  std::vector<std::vector<double>> returns;
  for (const std::vector<Turn>& sample : turns) returns.push_back(returns_to_go(sample));
  std::vector<size_t> first_token(turns.size(), 0);  // of the k-th turn
  for (const std::vector<size_t>& group : selection.groups) {
    bool all_zero = true;
    for (size_t k = 0;; ++k) {
      std::vector<size_t> present;
      std::vector<double> compared;
      for (const size_t i : group) {
        if (k >= returns[i].size()) continue;
        present.push_back(i);
        compared.push_back(returns[i][k]);
      }
      if (present.size() < needed) break;  // nor has a later turn more
      const std::vector<double> values = advantages(advantage, compared, baseline);
      for (size_t j = 0; j < present.size(); ++j) {
        const size_t i = present[j];
        const auto begin = selection.advantage[i].begin() + static_cast<int64_t>(first_token[i]);
        std::fill_n(begin, turns[i][k].tokens, values[j]);
        first_token[i] += turns[i][k].tokens;
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
    std::fill(selection.advantage[i].begin(), selection.advantage[i].end(), 0.0);
  }
}

bool equal_rewards(std::span<const Trajectory* const> group, bool by_turn) {
  std::vector<std::vector<double>> returns;
  for (const Trajectory* sample : group) {
    if (!sample->failure.empty()) continue;
    returns.push_back(by_turn ? returns_to_go(sample->all_turns()) : std::vector<double>{sample->reward});
  }
  for (size_t k = 0;; ++k) {
    std::vector<double> compared;
    for (const std::vector<double>& sample : returns)
      if (k < sample.size()) compared.push_back(sample[k]);
    if (compared.size() < 2) return true;
    const auto [low, high] = std::minmax_element(compared.begin(), compared.end());
    if (*low != *high) return false;
  }
}

}  // namespace motley::algos
