// How much of its time the learner waits for samples, and how fast the fleet draws meanwhile. Pure: time is an
// argument.
#pragma once

#include <cstdint>

#include "actors/policy/autoscaling.h"

namespace motley::actors {

class LearnerPace {
 public:
  /// From `now` on it looks for a batch. Seconds, which never fall.
  void waits(double now);
  /// It has one; and all tokens that the fleet had drawn by then.
  void takes(double now);
  void drawn(double tokens) { last_.tokens = tokens; }
  /// Sets since, used and hunger: of the last whole update, from take to take, but for tokens, which count until now. A
  /// wait that goes on is held against the time that the last update took without its waiting. Before two takes nothing
  /// is known: no hunger, and no token is spare.
  void fill(double now, double tokens, FleetLoad& load) const;

 private:
  struct Take {
    double at = 0.0, tokens = 0.0;
  };
  int64_t takes_ = 0;
  Take last_, before_;
  double waited_ = 0.0;  // of the update that ended with last_
  double busy_ = 0.0;    // from a take to the next wait, the last that is known
  double waits_since_ = 0.0;
  bool waiting_ = false;
};

}  // namespace motley::actors
