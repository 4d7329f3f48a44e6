// Problems from a seed: policy, rewards, a walk of exact gradient steps to the trainer's weights, and samplers at given
// distances from it.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "algos/audit/mismatch.h"
#include "algos/audit/policy.h"
#include "algos/audit/problem.h"

namespace motley::algos::audit {

struct ProblemSpec {
  bool table = false;  // a table of logits instead of a transformer
  int64_t vocabulary = 5, length = 4;
  bool end = true;  // token 0 ends a sequence; it is the transformer's prompt as well
  uint64_t seed = 0;
  int64_t steps_since_old = 0;     // pi_old is so many gradient steps before p; with `stale` at most kWalk
  int64_t record_top_k = 0;        // 0: all
  std::optional<double> baseline;  // absent: the sampler's expected reward
};

/// Problems that differ in the sampler alone.
class ProblemFamily {
 public:
  /// Rewards are 1 with probability 0.4, else 0, drawn again until both occur. The trainer's weights come last on a
  /// walk of kWalk steps along the exact gradient. Throws std::invalid_argument for values outside their ranges.
  explicit ProblemFamily(const ProblemSpec& spec);
  ProblemFamily(const ProblemFamily&) = delete;  // policies point to its tree
  ProblemFamily& operator=(const ProblemFamily&) = delete;
  /// Throws std::invalid_argument for a sampler that would be older than the walk.
  Problem at(const Mismatch& mismatch) const;

 private:
  const Policy& before_last(int64_t steps) const { return *walk_[static_cast<size_t>(kWalk - steps)]; }
  void distort(const Mismatch& mismatch, Problem& problem) const;

  ProblemSpec spec_;
  Problem trainer_;                            // without a sampler
  std::vector<std::unique_ptr<Policy>> walk_;  // [kWalk + 1]
};

}  // namespace motley::algos::audit
