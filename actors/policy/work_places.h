// Where calls into tasks are made, and which is made next: in the run's own process, or by workers that joined it. An
// interaction lives where it began, so that its calls wait for that place alone; all other calls go to any place that
// is free, workers that joined first: they are there to take the load off the run's machine. Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

namespace motley::actors {

class WorkPlaces {
 public:
  using Place = uint64_t;
  using Call = uint64_t;             // its number: older calls have smaller ones
  static constexpr Place kHere = 0;  // the run's own process, which is never closed
  explicit WorkPlaces(uint64_t slots_here);

  /// One more place, which makes so many calls at once; at least 1.
  Place add(uint64_t slots);
  /// Waits for any place, or for the one where its interaction lives, which is not closed.
  void wait(Call call, std::optional<Place> place);
  struct Start {
    Call call = 0;
    Place place = kHere;
  };
  /// The oldest call that can be made now: it has a slot until that is freed.
  std::optional<Start> next();
  void free(Place place);
  /// No call goes there any more. Those that waited for it alone are given back.
  std::vector<Call> close(Place place);
  bool closed(Place place) const { return !places_.contains(place); }

 private:
  struct State {
    uint64_t slots = 0, free = 0;
    std::deque<Call> waiting;
  };
  Start take(Place place, std::deque<Call>& calls);

  std::map<Place, State> places_;
  std::deque<Call> anywhere_;
  Place next_place_ = kHere;
};

}  // namespace motley::actors
