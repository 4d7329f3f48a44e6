// What wakes a thread that polls sockets: any thread may signal, the polling one clears.
#pragma once

#include <cstdint>

namespace motley::actors {

class WakeEvent {
 public:
  /// Throws std::runtime_error where the process has no descriptors left.
  WakeEvent();
  ~WakeEvent();
  WakeEvent(const WakeEvent&) = delete;
  WakeEvent& operator=(const WakeEvent&) = delete;
  void signal() const;
  void clear() const;
  /// Readable from a signal on until it is cleared.
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_ = -1;
};

}  // namespace motley::actors
