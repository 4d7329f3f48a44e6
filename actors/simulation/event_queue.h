// What will happen, in order of time; of equal times, in the order in which it was planned.
#pragma once

#include <cstdint>
#include <queue>
#include <vector>

namespace motley::simulation {

enum class EventKind : uint8_t {
  reply_ends,  // subject: replica
  replica_serves,
  replica_fails,
  turn_begins,  // subject: episode
  scored,
  trained,
  update_closed,
  weights_live,  // subject: version
  scale,
};

struct Event {
  double time = 0.0;
  uint64_t order = 0;
  EventKind kind = EventKind::scale;
  uint32_t subject = 0;
  uint32_t generation = 0;  // of the subject's plans: an event of an older one is void
  bool operator>(const Event& other) const { return time != other.time ? time > other.time : order > other.order; }
};

class EventQueue {
 public:
  void push(double time, EventKind kind, uint32_t subject = 0, uint32_t generation = 0) {
    events_.push({time, planned_++, kind, subject, generation});
  }
  bool empty() const { return events_.empty(); }
  Event pop() {
    const Event first = events_.top();
    events_.pop();
    return first;
  }

 private:
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  uint64_t planned_ = 0;
};

}  // namespace motley::simulation
