#include "actors/policy/learner_pace.h"

#include <algorithm>

namespace motley::actors {
namespace {

constexpr double kInstant = 1e-9;  // seconds; nothing is divided by less

}  // namespace

void LearnerPace::waits(double now) {
  if (takes_ > 0) busy_ = now - last_.at;
  waits_since_ = now;
  waiting_ = true;
}

void LearnerPace::takes(double now) {
  waited_ = waiting_ ? now - waits_since_ : 0.0;
  waiting_ = false;
  before_ = last_;
  last_ = {now, last_.tokens};
  ++takes_;
}

void LearnerPace::fill(double now, double tokens, FleetLoad& load) const {
  load.since = before_.at;
  load.used = std::numeric_limits<double>::infinity();
  load.hunger = 0.0;
  if (takes_ < 2) return;
  load.used = (tokens - before_.tokens) / std::max(kInstant, now - before_.at);
  load.hunger = waited_ / std::max(kInstant, last_.at - before_.at);
  const double waiting = waiting_ ? now - waits_since_ : 0.0;
  load.hunger = std::max(load.hunger, waiting / std::max(kInstant, waiting + busy_));
}

}  // namespace motley::actors
