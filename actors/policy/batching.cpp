#include "actors/policy/batching.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "algos/sample_selection.h"

namespace motley::actors {

std::optional<uint64_t> oldest_version(const TrajectoryGroup& group) {
  std::optional<uint64_t> oldest;
  for (const TrajectoryPtr& sample : group.samples) {
    if (!sample->failure.empty() || sample->records.size() == 0) continue;
    oldest = std::min(oldest.value_or(sample->oldest_version()), sample->oldest_version());
  }
  return oldest;
}

void GroupCollector::add(TrajectoryPtr trajectory) {
  Partial& partial = partial_[trajectory->group];
  if (partial.group.samples.empty()) {
    partial.group.id = trajectory->group;
    partial.group.samples.resize(static_cast<size_t>(group_size_));
  }
  const uint32_t sample = trajectory->sample;
  if (sample >= partial.group.samples.size() || partial.group.samples[sample])
    throw std::logic_error("sample " + std::to_string(sample) + " of group " + std::to_string(trajectory->group) +
                           " came twice or is out of range");
  const uint64_t id = trajectory->group;
  partial.group.samples[sample] = std::move(trajectory);
  if (++partial.present < group_size_) return;
  complete_.emplace(by_prompt_ ? id : arrivals_++, std::move(partial.group));
  partial_.erase(id);
}

template <class Unwanted>
std::vector<TrajectoryGroup> GroupCollector::drop_if(const Unwanted& unwanted) {
  std::vector<TrajectoryGroup> dropped;
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

std::vector<TrajectoryGroup> GroupCollector::drop_stale(uint64_t version, int64_t max_staleness) {
  return drop_if([&](const TrajectoryGroup& group) {
    const auto oldest = oldest_version(group);
    return oldest && *oldest + static_cast<uint64_t>(max_staleness) < version;
  });
}

std::vector<TrajectoryGroup> GroupCollector::drop_equal(bool by_turn) {
  return drop_if([by_turn](const TrajectoryGroup& group) {
    std::vector<const algos::Trajectory*> samples;
    for (const TrajectoryPtr& sample : group.samples) samples.push_back(sample.get());
    return algos::equal_rewards(samples, by_turn);
  });
}

std::vector<TrajectoryGroup> GroupCollector::take(int64_t count) {
  std::vector<TrajectoryGroup> taken;
  for (int64_t i = 0; i < count; ++i) {
    auto first = complete_.extract(complete_.begin());
    taken.push_back(std::move(first.mapped()));
  }
  return taken;
}

}  // namespace motley::actors
