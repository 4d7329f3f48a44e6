#include "actors/remote/learner_seat.h"

namespace motley::actors {

bool LearnerSeat::take(std::shared_ptr<PeerLine> line) {
  const std::lock_guard lock(mutex_);
  if (line_) return false;
  line_ = std::move(line);
  changed_.notify_all();
  return true;
}

void LearnerSeat::leave(const PeerLine* line) {
  const std::lock_guard lock(mutex_);
  if (line_.get() == line) line_.reset();
}

bool LearnerSeat::taken() const {
  const std::lock_guard lock(mutex_);
  return line_ != nullptr;
}

std::shared_ptr<PeerLine> LearnerSeat::wait(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, limit, [&] { return line_ != nullptr; });
  return line_;
}

}  // namespace motley::actors
