#include "actors/policy/work_places.h"

namespace motley::actors {

WorkPlaces::WorkPlaces(uint64_t slots_here) { add(slots_here); }

WorkPlaces::Place WorkPlaces::add(uint64_t slots) {
  places_[next_place_] = {.slots = slots, .free = slots, .waiting = {}};
  return next_place_++;
}

void WorkPlaces::wait(Call call, std::optional<Place> place) {
  (place ? places_.at(*place).waiting : anywhere_).push_back(call);
}

std::optional<WorkPlaces::Start> WorkPlaces::next() {
  std::optional<Place> oldest, emptiest;
  for (const auto& [place, state] : places_) {
    if (state.free == 0) continue;
    if (!state.waiting.empty() && (!oldest || state.waiting.front() < places_.at(*oldest).waiting.front()))
      oldest = place;
    // Of the workers that joined, by their share of free slots; this process where all of them are busy.
    const State* const best = emptiest ? &places_.at(*emptiest) : nullptr;
    if (!best || *emptiest == kHere || state.free * best->slots > best->free * state.slots) emptiest = place;
  }
  if (!emptiest) return std::nullopt;
  const bool bound = oldest && (anywhere_.empty() || places_.at(*oldest).waiting.front() < anywhere_.front());
  if (bound) return take(*oldest, places_.at(*oldest).waiting);
  if (anywhere_.empty()) return std::nullopt;
  return take(*emptiest, anywhere_);
}

WorkPlaces::Start WorkPlaces::take(Place place, std::deque<Call>& calls) {
  const Start start{calls.front(), place};
  calls.pop_front();
  --places_.at(place).free;
  return start;
}

void WorkPlaces::free(Place place) {
  const auto found = places_.find(place);
  if (found != places_.end()) ++found->second.free;
}

std::vector<WorkPlaces::Call> WorkPlaces::close(Place place) {
  const auto found = places_.extract(place);
  if (found.empty()) return {};
  const std::deque<Call>& calls = found.mapped().waiting;
  return {calls.begin(), calls.end()};
}

}  // namespace motley::actors
