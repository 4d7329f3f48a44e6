// The one place that a run has for a learner in another process: the gate's proxy takes it and gives it up, the run's
// trainer waits for whoever takes it. Free of CAF.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "actors/remote/peer_line.h"

namespace motley::actors {

class LearnerSeat {
 public:
  /// False: it is taken.
  bool take(std::shared_ptr<PeerLine> line);
  /// Nothing happens for one that does not have it.
  void leave(const PeerLine* line);
  bool taken() const;
  /// Null: nobody has come within `limit`.
  std::shared_ptr<PeerLine> wait(std::chrono::milliseconds limit);

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<PeerLine> line_;
};

}  // namespace motley::actors
