#include "actors/remote/evaluator_seats.h"

#include <algorithm>
#include <utility>

namespace motley::actors {

void EvaluatorSeats::add(Seat seat) {
  const std::lock_guard lock(mutex_);
  if (!closed_) seats_.push_back(std::move(seat));
}

void EvaluatorSeats::leave(const PeerLine* line) {
  const std::lock_guard lock(mutex_);
  std::erase_if(seats_, [&](const Seat& seat) { return seat.line.get() == line; });
}

std::optional<EvaluatorSeats::Seat> EvaluatorSeats::first() const {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(seats_.begin(), seats_.end(), [](const Seat& seat) { return !seat.line->is_closed(); });
  if (found == seats_.end()) return std::nullopt;
  return *found;
}

void EvaluatorSeats::close(const std::string& cause) {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  for (const Seat& seat : std::exchange(seats_, {})) seat.line->closed(cause);
}

}  // namespace motley::actors
