// What a relay does to the bytes of one direction of a connection: holds them, slows them down, loses them.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <vector>

namespace motley::fleet {

using RelayClock = std::chrono::steady_clock;

/// Of one direction of all connections through one port.
struct Conditions {
  enum class Mode : uint8_t {
    forward,
    stall,  // nothing is read or written: the sender's buffers fill
    drop,   // everything is read, nothing is written
  } mode = Mode::forward;
  std::chrono::microseconds delay{0};
  double bytes_per_second = 0;     // 0: no limit
  RelayClock::time_point free_at;  // of the limit: when the next byte may go
};

/// The bytes on their way. Order is kept whatever changes meanwhile.
class Traffic {
 public:
  static constexpr size_t kMost = size_t{4} << 20;  // bytes held; more stay with the sender
  bool room() const { return held_ < kMost; }
  bool empty() const { return chunks_.empty(); }
  void add(const char* bytes, size_t count, RelayClock::time_point due);
  /// When the first bytes may go.
  RelayClock::time_point due(const Conditions& conditions) const;
  /// The first bytes, at most as many as the limit allows at once.
  std::pair<const char*, size_t> front(const Conditions& conditions) const;
  void sent(size_t count, Conditions& conditions, RelayClock::time_point now);

 private:
  struct Chunk {
    std::vector<char> bytes;
    RelayClock::time_point due;
  };
  std::deque<Chunk> chunks_;
  size_t offset_ = 0;  // in the first chunk
  size_t held_ = 0;
};

}  // namespace motley::fleet
