#include "actors/policy/placement.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

#include "kernels/philox.h"

namespace motley::actors {
namespace {

using Group = Placement::Group;

/// Sessions by group after `count` of them went where the policy said.
std::vector<int> placed_by_group(Placement& placement, size_t groups, int count) {
  std::vector<int> placed(groups, 0);
  for (int i = 0; i < count; ++i) ++placed[placement.group_of(placement.place().value())];
  return placed;
}

/// What LoadTree does, place by place.
struct SlowLoad {
  std::map<size_t, std::pair<int64_t, double>> places;
  std::optional<size_t> least() const {
    std::optional<size_t> best;
    for (const auto& [place, state] : places)
      if (!best || state.first < places.at(*best).first) best = place;
    return best;
  }
  double capacity() const {
    double sum = 0;
    for (const auto& [place, state] : places) sum += state.second;
    return sum;
  }
};

}  // namespace

TEST_CASE("capacity: groups get sessions in proportion within one percent over 1,000, replicas in a group alike") {
  Placement placement(Routing::capacity, {{.slots = 1000}, {.slots = 1000}, {.slots = 1000}});
  placement.add(0, 0, 100.0);
  placement.add(1, 1, 150.0);
  placement.add(2, 1, 150.0);
  placement.add(3, 2, 600.0);
  CHECK(placed_by_group(placement, 3, 1000) == std::vector<int>{100, 300, 600});
  CHECK(placement.sessions(1) == 150);
  CHECK(placement.sessions(2) == 150);
}

TEST_CASE("capacity: a fixed share stands; capacities that change count from then on; a lost group gets nothing") {
  Placement placement(Routing::capacity, {{.share = 0.2}, {}, {}});
  placement.add(0, 0, 5.0);
  placement.add(1, 1, 30.0);
  placement.add(2, 2, 10.0);
  CHECK(placed_by_group(placement, 3, 1000) == std::vector<int>{200, 600, 200});
  placement.set_capacity(2, 30.0);
  const std::vector<int> equal = placed_by_group(placement, 3, 1000);
  CHECK(std::abs(equal[1] - 400) <= 10);
  CHECK(std::abs(equal[2] - 400) <= 10);
  placement.remove(1);
  CHECK(placement.serving(1) == 0);
  CHECK(placed_by_group(placement, 3, 100)[1] == 0);
  placement.add(7, 1, 30.0);  // back, and not owed what it missed
  CHECK(std::abs(placed_by_group(placement, 3, 100)[1] - 40) <= 1);
}

TEST_CASE("least_loaded: the smallest share of slots in use, whatever the group") {
  Placement placement(Routing::least_loaded, {{.slots = 2}, {.slots = 8}});
  placement.add(0, 0, 0.0);
  placement.add(1, 1, 0.0);
  CHECK(placed_by_group(placement, 2, 10) == std::vector<int>{2, 8});
  placement.ended(1);
  placement.ended(1);
  CHECK(placement.place() == 1);
}

TEST_CASE("round_robin: in turn by number; who leaves is passed over, who comes is next in its place") {
  Placement placement(Routing::round_robin, {{}, {}});
  for (const uint64_t replica : {5, 1, 3}) placement.add(replica, replica == 1 ? 1 : 0, 0.0);
  CHECK(placement.place() == 1);
  CHECK(placement.place() == 3);
  placement.remove(3);
  placement.add(4, 1, 0.0);
  CHECK(placement.place() == 4);
  CHECK(placement.place() == 5);
  CHECK(placement.place() == 1);
}

TEST_CASE("a session goes where it was, or elsewhere in its group, or waits") {
  const auto routing = GENERATE(Routing::capacity, Routing::least_loaded, Routing::round_robin);
  Placement placement(routing, {{}, {}});
  CHECK_FALSE(placement.place());
  CHECK_FALSE(placement.place_in(1));
  CHECK_FALSE(placement.place_at(0));
  placement.add(0, 0, 0.0);  // its capacity is not known yet
  CHECK(placement.place() == 0);
  CHECK(placement.place_at(0));
  CHECK(placement.sessions(0) == 2);
  CHECK_FALSE(placement.place_in(1));
  placement.ended(9);
  placement.remove(9);
  placement.set_capacity(9, 1.0);
  CHECK_THROWS_AS(placement.add(0, 1, 1.0), std::logic_error);
  CHECK_THROWS_AS(placement.add(1, 2, 1.0), std::out_of_range);
  placement.remove(0);
  CHECK_FALSE(placement.place());
  placement.add(0, 0, 1.0);
  CHECK(placement.sessions(0) == 0);
}

TEST_CASE("names of routings") {
  CHECK(parse_routing("capacity") == Routing::capacity);
  CHECK(parse_routing("least_loaded") == Routing::least_loaded);
  CHECK(parse_routing("round_robin") == Routing::round_robin);
  CHECK_THROWS_AS(parse_routing("random"), std::invalid_argument);
}

TEST_CASE("the load tree agrees with a plain list over random changes") {
  LoadTree tree;
  SlowLoad slow;
  CHECK_FALSE(tree.least());
  kernels::RandomStream random({.seed = 4, .purpose = kernels::Purpose::data});
  for (int i = 0; i < 3000; ++i) {
    const uint64_t place = random.below(37);
    if (random.below(4) == 0) {
      tree.clear(place);
      slow.places.erase(place);
    } else {
      const auto sessions = static_cast<int64_t>(random.below(5));
      const double capacity = random.uniform();
      tree.set(place, sessions, capacity);
      slow.places[place] = {sessions, capacity};
    }
    REQUIRE(tree.least() == slow.least());
    REQUIRE(tree.capacity() == Approx(slow.capacity()).margin(1e-12));
  }
}

}  // namespace motley::actors
