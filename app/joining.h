// What the commands that join a run have in common.
#pragma once

#include <signal.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "actors/remote/join.h"

namespace motley::app {

/// A line of the log.
void say_line(const std::string& text);
void say_end(actors::JoinEnd end);

/// Where --join says that the run is, and the keys of --key (empty: null). Throws InputError, AddressError, KeyError.
std::pair<actors::Address, std::shared_ptr<const actors::Keys>> run_to_join(const std::string& join,
                                                                            const std::string& key);

/// For all that this process computes; 0: one per core.
void use_compute_threads(int64_t threads);

/// SIGINT and SIGTERM: the first sets `stop` and says what becomes of the work, the second ends the process. Made
/// before any other thread: one that does not block the signals would get them.
class LeaveOnSignal {
 public:
  LeaveOnSignal(actors::StopRequest& stop, std::string what_becomes);
  ~LeaveOnSignal();
  LeaveOnSignal(const LeaveOnSignal&) = delete;
  LeaveOnSignal& operator=(const LeaveOnSignal&) = delete;

 private:
  void watch();
  actors::StopRequest& stop_;
  std::string what_becomes_;
  sigset_t set_{};
  std::atomic<bool> done_{false};
  std::thread thread_;
};

}  // namespace motley::app
