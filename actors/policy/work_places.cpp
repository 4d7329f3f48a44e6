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
  const State* best = nullptr;
  Place at = kHere;
  for (auto& [place, state] : places_) {
    if (state.free == 0) continue;
    if (!state.waiting.empty()) return take(place, state.waiting);
    // The emptiest worker that joined, by its share of free slots; this process where all of them are busy.
    const bool better = !best || at == kHere || state.free * best->slots > best->free * state.slots;
    if (better) best = &state, at = place;
  }
  if (!best || anywhere_.empty()) return std::nullopt;
  return take(at, anywhere_);
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
