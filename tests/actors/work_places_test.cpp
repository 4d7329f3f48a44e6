// Which call into a task is made next, and where.
#include "actors/policy/work_places.h"

#include <catch2/catch.hpp>

namespace motley::actors {
namespace {

constexpr auto kHere = WorkPlaces::kHere;

/// The place of the call that is made next; -1: none can be.
int64_t place_of(WorkPlaces& places, WorkPlaces::Call call) {
  const auto start = places.next();
  if (!start) return -1;
  CHECK(start->call == call);
  return static_cast<int64_t>(start->place);
}

}  // namespace

TEST_CASE("calls go to workers that joined, the emptiest first, and stay here only where all of those are busy") {
  WorkPlaces places(1);
  const auto small = places.add(1), large = places.add(4);
  CHECK(place_of(places, 0) == -1);
  for (WorkPlaces::Call call = 0; call < 7; ++call) places.wait(call, std::nullopt);
  CHECK(place_of(places, 0) == static_cast<int64_t>(small));  // as empty as the other, and older
  for (WorkPlaces::Call call = 1; call < 5; ++call) CHECK(place_of(places, call) == static_cast<int64_t>(large));
  CHECK(place_of(places, 5) == static_cast<int64_t>(kHere));
  CHECK(place_of(places, 6) == -1);
  places.free(large);
  CHECK(place_of(places, 6) == static_cast<int64_t>(large));
}

TEST_CASE("a call of an interaction waits for its place alone, and no call overtakes an older one at its place") {
  WorkPlaces places(1);
  const auto joined = places.add(1);
  places.wait(0, std::nullopt);
  CHECK(place_of(places, 0) == static_cast<int64_t>(joined));
  places.wait(1, joined);
  places.wait(2, kHere);
  places.wait(3, std::nullopt);
  places.wait(4, kHere);
  CHECK(place_of(places, 2) == static_cast<int64_t>(kHere));
  CHECK(place_of(places, 1) == -1);
  places.free(kHere);
  CHECK(place_of(places, 3) == static_cast<int64_t>(kHere));
  CHECK(place_of(places, 4) == -1);
  places.free(joined);
  CHECK(place_of(places, 1) == static_cast<int64_t>(joined));
  places.free(joined);
  CHECK(place_of(places, 4) == -1);  // it would have to go here
  places.free(kHere);
  CHECK(place_of(places, 4) == static_cast<int64_t>(kHere));
}

TEST_CASE("a place that is closed gives back what waits for it, and gets nothing more") {
  WorkPlaces places(1);
  const auto joined = places.add(2);
  places.wait(0, joined);
  CHECK(place_of(places, 0) == static_cast<int64_t>(joined));
  places.wait(1, joined);
  places.wait(2, std::nullopt);
  CHECK_FALSE(places.closed(joined));
  CHECK(places.close(joined) == std::vector<WorkPlaces::Call>{1});
  CHECK(places.closed(joined));
  CHECK(places.close(joined).empty());
  places.free(joined);  // the call that was under way is over
  CHECK(place_of(places, 2) == static_cast<int64_t>(kHere));
  CHECK(place_of(places, 3) == -1);
}

}  // namespace motley::actors
