// Which samples each optimizer step on a batch takes.
#pragma once

#include <cstdint>
#include <vector>

#include "algos/sample_selection.h"

namespace motley::algos {

struct MinibatchRule {
  int64_t minibatches = 1, epochs = 1;  // at least 1
  uint64_t seed = 0;
};
/// One list of indices into the batch per step, epoch after epoch, the same number in each. Groups stay whole; their
/// order depends on the seed, the batch's number and the epoch. One minibatch is the batch in its own order; no more
/// minibatches than groups.
std::vector<std::vector<size_t>> plan_minibatches(const SampleSelection& selection, const MinibatchRule& rule,
                                                  uint64_t batch);

}  // namespace motley::algos
