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
  std::vector<size_t> kept;                 // indices into the batch, ascending
  std::vector<std::vector<size_t>> groups;  // the kept samples by group, in order of first appearance
  std::vector<double> advantage;            // [batch]; 0 for samples that are not kept
  int64_t failed = 0;                       // episodes that failed, and samples whose arrays disagree
  int64_t dropped_nan = 0;                  // NaN or infinity among the recorded log-probabilities
  int64_t zero_groups = 0;  // groups whose advantages are all 0; one usable sample alone is such a group
};

SampleSelection select_samples(std::span<const Trajectory> batch, int64_t vocabulary, int64_t max_positions,
                               std::string_view advantage);

}  // namespace motley::algos
