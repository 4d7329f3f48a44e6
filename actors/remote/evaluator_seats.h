// The evaluators of other processes that are there: the gate's proxies bring and take them, the run's own evaluator
// asks for one. Free of CAF.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "actors/remote/peer_line.h"

namespace motley::actors {

class EvaluatorSeats {
 public:
  struct Seat {
    std::shared_ptr<PeerLine> line;
    std::string name;  // for messages
  };
  void add(Seat seat);
  /// Nothing happens for one that is not there.
  void leave(const PeerLine* line);
  /// The first of those that are there; it is asked for one evaluation at a time.
  std::optional<Seat> first() const;
  /// Whoever waits for one of them is woken, and nobody is there from now on.
  void close(const std::string& cause);

 private:
  mutable std::mutex mutex_;
  std::vector<Seat> seats_;  // in the order in which they joined
  bool closed_ = false;
};

}  // namespace motley::actors
