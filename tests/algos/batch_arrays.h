// A CorrectionBatch that owns its arrays.
#pragma once

#include <string>
#include <vector>

#include "algos/correction.h"

namespace motley::algos {

struct BatchArrays {
  std::vector<int64_t> offsets{0}, sampled, sequence;
  std::vector<double> log_p, log_q, log_p_tail, log_q_tail, log_p_old, advantage;
  std::vector<uint8_t> in_record;
  std::vector<int64_t> group, staleness;  // may stay empty
  std::vector<std::string> names;
  int64_t steps_since_old = 0, steps_per_batch = 1;

  CorrectionBatch view() const {
    return {.offsets = offsets,
            .sampled = sampled,
            .log_p = log_p,
            .log_q = log_q,
            .in_record = in_record,
            .log_p_tail = log_p_tail,
            .log_q_tail = log_q_tail,
            .log_p_old = log_p_old,
            .advantage = advantage,
            .sequence = sequence,
            .sampler_group = group,
            .group_names = names,
            .staleness = staleness,
            .steps_since_old = steps_since_old,
            .steps_per_batch = steps_per_batch};
  }
  Coefficients coefficients(const Correction& correction) const {
    Coefficients out(view());
    correction.coefficients(view(), out);
    return out;
  }
};

}  // namespace motley::algos
