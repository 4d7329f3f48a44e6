// A problem from a seed: policy, rewards, a walk of exact gradient steps to the trainer's weights, and a sampler at a
// given distance.
#pragma once

#include "algos/audit/mismatch.h"
#include "algos/audit/problem.h"

namespace motley::algos::audit {

struct ProblemSpec {
  bool table = false;  // a table of logits instead of a transformer
  int64_t vocabulary = 5, length = 4;
  bool end = true;  // token 0 ends a sequence; it is the transformer's prompt as well
  uint64_t seed = 0;
  Mismatch mismatch;
  int64_t steps_since_old = 0;     // pi_old is so many gradient steps before p; with `stale` at most kWalk
  int64_t record_top_k = 0;        // 0: all
  std::optional<double> baseline;  // absent: the sampler's expected reward
};

/// Rewards are 1 with probability 0.4, else 0, drawn again until both occur. The trainer's weights come last on a walk
/// of kWalk steps along the exact gradient, and do not depend on the mismatch. Throws std::invalid_argument for values
/// outside their ranges.
Problem make_problem(const ProblemSpec& spec);

}  // namespace motley::algos::audit
