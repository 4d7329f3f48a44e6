#include "tests/fleet/relay/traffic.h"

#include <algorithm>

namespace motley::fleet {

constexpr double kPiecesPerSecond = 50;  // a limited stream goes in so many pieces, not in bursts

void Traffic::add(const char* bytes, size_t count, RelayClock::time_point due) {
  chunks_.push_back({std::vector<char>(bytes, bytes + count), due});
  held_ += count;
}

RelayClock::time_point Traffic::due(const Conditions& conditions) const {
  return std::max(chunks_.front().due, conditions.free_at);
}

std::pair<const char*, size_t> Traffic::front(const Conditions& conditions) const {
  const std::vector<char>& bytes = chunks_.front().bytes;
  size_t count = bytes.size() - offset_;
  if (conditions.bytes_per_second > 0)
    count = std::min(count, std::max<size_t>(1, static_cast<size_t>(conditions.bytes_per_second / kPiecesPerSecond)));
  return {bytes.data() + offset_, count};
}

void Traffic::sent(size_t count, Conditions& conditions, RelayClock::time_point now) {
  if (conditions.bytes_per_second > 0)
    conditions.free_at = std::max(now, conditions.free_at) +
                         std::chrono::duration_cast<RelayClock::duration>(
                             std::chrono::duration<double>(static_cast<double>(count) / conditions.bytes_per_second));
  held_ -= count;
  offset_ += count;
  if (offset_ < chunks_.front().bytes.size()) return;
  offset_ = 0;
  chunks_.pop_front();
}

}  // namespace motley::fleet
