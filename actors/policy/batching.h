// Which groups of trajectories are complete, which are too old, and which make the next batch. Pure: no clocks, no
// actors. Groups are kept or dropped whole.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "algos/trajectory.h"

namespace motley::actors {

using TrajectoryPtr = std::shared_ptr<algos::Trajectory>;

/// All samples of one prompt, by sample number.
struct TrajectoryGroup {
  uint64_t id = 0;
  std::vector<TrajectoryPtr> samples;
};
/// The oldest weight version among the group's tokens; nothing if it has no trainable token.
std::optional<uint64_t> oldest_version(const TrajectoryGroup& group);

class GroupCollector {
 public:
  /// `by_prompt`: batches in prompt order (lock-step); otherwise in order of completion.
  GroupCollector(int64_t group_size, bool by_prompt) : group_size_(group_size), by_prompt_(by_prompt) {}
  /// Throws std::logic_error for a sample that is there already or out of range.
  void add(TrajectoryPtr trajectory);
  int64_t complete() const { return static_cast<int64_t>(complete_.size()); }
  /// Removes and gives the complete groups that are more than `max_staleness` versions behind `version`.
  std::vector<TrajectoryGroup> drop_stale(uint64_t version, int64_t max_staleness);
  /// Removes and gives the complete groups that cannot teach what compares their samples (algos::equal_rewards).
  std::vector<TrajectoryGroup> drop_equal(bool by_turn);
  /// Removes and gives the first `count` complete groups; count <= complete().
  std::vector<TrajectoryGroup> take(int64_t count);

 private:
  int64_t group_size_;
  bool by_prompt_;
  uint64_t arrivals_ = 0;
  struct Partial {
    TrajectoryGroup group;
    int64_t present = 0;
  };
  template <class Unwanted>
  std::vector<TrajectoryGroup> drop_if(const Unwanted& unwanted);
  std::map<uint64_t, Partial> partial_;           // by group id
  std::map<uint64_t, TrajectoryGroup> complete_;  // by group id, or by order of completion
};

/// More than half of an update's samples were dropped as too old: no batch of `wanted` can make up for them.
constexpr bool too_many_dropped(int64_t dropped, int64_t wanted) { return dropped > wanted; }

}  // namespace motley::actors
