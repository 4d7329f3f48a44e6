// Work that other threads post for a thread which polls sockets.
#pragma once

#include <functional>
#include <mutex>
#include <vector>

#include "actors/wake_event.h"

namespace motley::actors {

class Posted {
 public:
  /// From any thread.
  void post(std::function<void()> work);
  /// Readable while something is posted.
  int descriptor() const { return wake_.descriptor(); }
  /// On the polling thread: everything that has been posted, in order.
  void run();

 private:
  WakeEvent wake_;
  std::mutex mutex_;
  std::vector<std::function<void()>> work_;
};

}  // namespace motley::actors
