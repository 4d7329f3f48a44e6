// A CorrectionBatch whose arrays are owned, for those that lay one out: the learner, the audit, tests.
#pragma once

#include <vector>

#include "algos/correction.h"

namespace motley::algos {

struct CorrectionArrays {
  std::vector<int64_t> offsets{0}, sampled, sequence, sampler_group, staleness;
  std::vector<double> log_p, log_q, log_p_tail, log_q_tail, log_p_old, advantage;
  std::vector<uint8_t> in_record;

  size_t entries() const { return log_p.size(); }
  size_t tokens() const { return sampled.size(); }
  /// Points into these arrays. Names of the sampler groups and counts of steps are the caller's to set.
  CorrectionBatch view() const {
    CorrectionBatch batch{.offsets = offsets, .sampled = sampled, .log_p = log_p, .log_q = log_q};
    batch.in_record = in_record;
    batch.log_p_tail = log_p_tail;
    batch.log_q_tail = log_q_tail;
    batch.log_p_old = log_p_old;
    batch.advantage = advantage;
    batch.sequence = sequence;
    batch.sampler_group = sampler_group;
    batch.staleness = staleness;
    return batch;
  }
};

}  // namespace motley::algos
