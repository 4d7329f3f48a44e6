#include "actors/policy/batching.h"

#include <stdexcept>
#include <string>

#include "algos/sample_selection.h"

namespace motley::actors {

std::optional<uint64_t> oldest_version_of(const TrajectoryPtr& sample) {
  if (!sample->failure.empty() || sample->records.size() == 0) return std::nullopt;
  return sample->oldest_version();
}

void refuse_sample(uint64_t group, uint32_t sample) {
  throw std::logic_error("sample " + std::to_string(sample) + " of group " + std::to_string(group) +
                         " came twice or is out of range");
}

bool equal_rewards(const TrajectoryGroup& group, bool by_turn) {
  std::vector<const algos::Trajectory*> samples;
  for (const TrajectoryPtr& sample : group.samples) samples.push_back(sample.get());
  return algos::equal_rewards(samples, by_turn);
}

}  // namespace motley::actors
