// Which samples of a batch are trained on, and with which advantage. Groups keep together: an advantage compares the
// usable samples of one group.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "algos/trajectory.h"

namespace motley::algos {

struct SampleSelection {
  std::vector<size_t> kept;                    // indices into the batch, ascending
  std::vector<std::vector<size_t>> groups;     // the kept samples by group, in order of first appearance
  std::vector<std::vector<double>> advantage;  // [batch][loss tokens] 0 where filtered; samples that are not kept: none
  std::vector<uint8_t> filtered;               // [batch] 1: compared with and reported, but not trained on
  int64_t failed = 0;                          // episodes that failed, and samples whose arrays disagree
  int64_t dropped_nan = 0;                     // NaN or infinity among the recorded log-probabilities
  int64_t zero_groups = 0;  // groups whose advantages are all 0; one usable sample alone is such a group, where an
                            // advantage compares
};

/// Whose log-probabilities and arrays can be used, by group. Every advantage is still 0, and none is filtered.
SampleSelection select_samples(std::span<const Trajectory> batch, int64_t vocabulary, int64_t max_positions);
/// `turns` [batch]: what is compared, shaping included; a sample that is compared as a whole is one turn. The k-th
/// turns of a group are compared with each other, by what their samples earned from there on: those of samples that
/// have one, and none that has no other beside it. `baseline`: of "reinforce".
void set_advantages(SampleSelection& selection, std::string_view advantage, std::span<const std::vector<Turn>> turns,
                    double baseline);
/// Takes samples out of training that stay in their group's comparison.
void filter_truncated(SampleSelection& selection, std::span<const Trajectory> batch);

/// True if a group cannot teach what compares its samples, or with `by_turn` the turns of its samples: fewer than two
/// did not fail, or those have equal rewards. Looks at the task's reward alone, never at terms that the learner adds.
bool equal_rewards(std::span<const Trajectory* const> group, bool by_turn);

}  // namespace motley::algos
