// Which groups of trajectories are complete, which are too old, and which make the next batch. Pure: no clocks, no
// actors. Groups are kept or dropped whole.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "algos/trajectory.h"

namespace motley::actors {

using TrajectoryPtr = std::shared_ptr<algos::Trajectory>;

/// All samples of one prompt, by sample number. A Sample says of itself, by functions beside its type: is_present,
/// group_of, number_of, and oldest_version_of (nothing if it has no trainable token); the empty one is not present.
template <class Sample>
struct SampleGroup {
  uint64_t id = 0;
  std::vector<Sample> samples;
};

inline bool is_present(const TrajectoryPtr& sample) { return sample != nullptr; }
inline uint64_t group_of(const TrajectoryPtr& sample) { return sample->group; }
inline uint32_t number_of(const TrajectoryPtr& sample) { return sample->sample; }
std::optional<uint64_t> oldest_version_of(const TrajectoryPtr& sample);

/// The oldest weight version among the group's tokens; nothing if it has no trainable token.
template <class Sample>
std::optional<uint64_t> oldest_version(const SampleGroup<Sample>& group) {
  std::optional<uint64_t> oldest;
  for (const Sample& sample : group.samples)
    if (const auto version = oldest_version_of(sample)) oldest = std::min(oldest.value_or(*version), *version);
  return oldest;
}

/// Throws std::logic_error.
[[noreturn]] void refuse_sample(uint64_t group, uint32_t sample);

template <class Sample>
class Collector {
 public:
  using Group = SampleGroup<Sample>;
  /// `by_prompt`: batches in prompt order (lock-step); otherwise in order of completion.
  Collector(int64_t group_size, bool by_prompt) : group_size_(group_size), by_prompt_(by_prompt) {}
  /// Throws std::logic_error for a sample that is there already or out of range.
  void add(Sample sample) {
    const uint64_t id = group_of(sample);
    const uint32_t number = number_of(sample);
    Partial& partial = partial_[id];
    if (partial.group.samples.empty()) {
      partial.group.id = id;
      partial.group.samples.resize(static_cast<size_t>(group_size_));
    }
    if (number >= partial.group.samples.size() || is_present(partial.group.samples[number])) refuse_sample(id, number);
    partial.group.samples[number] = std::move(sample);
    if (++partial.present < group_size_) return;
    complete_.emplace(by_prompt_ ? id : arrivals_++, std::move(partial.group));
    partial_.erase(id);
  }
  int64_t complete() const { return static_cast<int64_t>(complete_.size()); }
  /// Removes and gives the complete groups that are more than `max_staleness` versions behind `version`.
  std::vector<Group> drop_stale(uint64_t version, int64_t max_staleness) {
    return drop_if([&](const Group& group) {
      const auto oldest = oldest_version(group);
      return oldest && *oldest + static_cast<uint64_t>(max_staleness) < version;
    });
  }
  /// Removes and gives the complete groups that `unwanted` is true for.
  template <class Unwanted>
  std::vector<Group> drop_if(const Unwanted& unwanted) {
    std::vector<Group> dropped;
    for (auto it = complete_.begin(); it != complete_.end();) {
      if (unwanted(it->second)) {
        dropped.push_back(std::move(it->second));
        it = complete_.erase(it);
      } else {
        ++it;
      }
    }
    return dropped;
  }
  /// Removes and gives the first `count` complete groups; count <= complete().
  std::vector<Group> take(int64_t count) {
    std::vector<Group> taken;
    for (int64_t i = 0; i < count; ++i) {
      auto first = complete_.extract(complete_.begin());
      taken.push_back(std::move(first.mapped()));
    }
    return taken;
  }

 private:
  int64_t group_size_;
  bool by_prompt_;
  uint64_t arrivals_ = 0;
  struct Partial {
    Group group;
    int64_t present = 0;
  };
  std::map<uint64_t, Partial> partial_;  // by group id
  std::map<uint64_t, Group> complete_;   // by group id, or by order of completion
};

using TrajectoryGroup = SampleGroup<TrajectoryPtr>;
using GroupCollector = Collector<TrajectoryPtr>;
/// Whether the group cannot teach what compares its samples (algos::equal_rewards).
bool equal_rewards(const TrajectoryGroup& group, bool by_turn);

/// More than half of an update's samples were dropped as too old: no batch of `wanted` can make up for them.
constexpr bool too_many_dropped(int64_t dropped, int64_t wanted) { return dropped > wanted; }

}  // namespace motley::actors
