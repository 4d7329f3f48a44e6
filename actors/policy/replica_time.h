// For how long the replicas of a group have been there, while they come and go. Pure: time is an argument.
#pragma once

#include <chrono>
#include <cstdint>

namespace motley::actors {

class ReplicaTime {
 public:
  using Time = std::chrono::steady_clock::time_point;
  /// One more, or one fewer, from now on.
  void change(int64_t by, Time now) {
    past_ = total(now);
    since_ = now;
    count_ += by;
  }
  /// Summed over the replicas.
  std::chrono::nanoseconds total(Time now) const {
    return past_ + count_ * std::chrono::duration_cast<std::chrono::nanoseconds>(now - since_);
  }
  int64_t count() const { return count_; }

 private:
  std::chrono::nanoseconds past_{0};
  Time since_{};
  int64_t count_ = 0;
};

}  // namespace motley::actors
