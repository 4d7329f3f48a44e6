#include "actors/policy/placement.h"

#include <algorithm>
#include <stdexcept>

namespace motley::actors {

const std::vector<std::string>& routing_names() {
  static const std::vector<std::string> names{"capacity", "least_loaded", "round_robin"};  // in the enum's order
  return names;
}

Routing parse_routing(std::string_view name) {
  const auto& names = routing_names();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) throw std::invalid_argument("there is no routing \"" + std::string(name) + "\"");
  return static_cast<Routing>(found - names.begin());
}

Placement::Placement(Routing routing, const std::vector<Group>& groups) : routing_(routing), choice_(groups.size()) {
  for (const Group& group : groups) {
    fixed_.push_back(group.share);
    groups_.push_back({.options = group});
  }
}

void Placement::add(uint64_t replica, size_t group, double capacity) {
  GroupState& state = groups_.at(group);
  if (serves(replica)) throw std::logic_error("replica " + std::to_string(replica) + " serves already");
  Seat seat{group, state.replicas.size(), capacity};
  if (state.free.empty()) {
    state.replicas.push_back(replica);
  } else {
    seat.place = state.free.back();
    state.free.pop_back();
    state.replicas[seat.place] = replica;
  }
  state.load.set(seat.place, 0, capacity);
  ++state.count;
  seats_.emplace(replica, seat);
  if (routing_ == Routing::round_robin) ring_.insert(replica);
}

void Placement::remove(uint64_t replica) {
  const auto found = seats_.find(replica);
  if (found == seats_.end()) return;
  GroupState& state = groups_[found->second.group];
  state.load.clear(found->second.place);
  state.free.push_back(found->second.place);
  --state.count;
  seats_.erase(found);
  ring_.erase(replica);
}

void Placement::set_capacity(uint64_t replica, double capacity) {
  const auto found = seats_.find(replica);
  if (found == seats_.end()) return;
  found->second.capacity = capacity;
  count(found->second, 0);
}

int64_t Placement::sessions(uint64_t replica) const {
  const Seat& seat = seats_.at(replica);
  return groups_[seat.group].load.sessions(seat.place);
}

void Placement::count(const Seat& seat, int64_t change) {
  LoadTree& load = groups_[seat.group].load;
  load.set(seat.place, load.sessions(seat.place) + change, seat.capacity);
}

std::optional<uint64_t> Placement::place_in(size_t group) {
  const auto least = groups_.at(group).load.least();
  if (!least) return std::nullopt;
  const uint64_t replica = groups_[group].replicas[*least];
  count(seats_.at(replica), 1);
  return replica;
}

bool Placement::place_at(uint64_t replica) {
  const auto found = seats_.find(replica);
  if (found == seats_.end()) return false;
  count(found->second, 1);
  return true;
}

void Placement::ended(uint64_t replica) {
  if (const auto found = seats_.find(replica); found != seats_.end()) count(found->second, -1);
}

std::optional<uint64_t> Placement::place() {
  if (seats_.empty()) return std::nullopt;
  if (routing_ == Routing::round_robin) return next_in_turn();
  const auto group = routing_ == Routing::capacity ? group_by_capacity() : group_by_load();
  return group ? place_in(*group) : std::nullopt;
}

std::optional<uint64_t> Placement::next_in_turn() {
  auto next = last_ ? ring_.upper_bound(*last_) : ring_.begin();
  if (next == ring_.end()) next = ring_.begin();
  last_ = *next;
  count(seats_.at(*next), 1);
  return *next;
}

std::optional<size_t> Placement::group_by_capacity() {
  std::vector<double> capacity(groups_.size(), 0.0);
  for (size_t g = 0; g < groups_.size(); ++g) {
    const GroupState& group = groups_[g];
    if (group.count > 0) capacity[g] = group.options.share ? 1.0 : group.load.capacity();
  }
  const std::vector<double> shares = group_shares(fixed_, capacity);
  // Replicas that serve, none of which has a capacity yet.
  if (std::all_of(shares.begin(), shares.end(), [](double share) { return share <= 0; })) return group_by_load();
  return choice_.choose(shares);
}

std::optional<size_t> Placement::group_by_load() const {
  std::optional<size_t> best;
  double lowest = 0.0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const auto least = groups_[g].load.least();
    if (!least) continue;
    const double load = static_cast<double>(groups_[g].load.sessions(*least)) /
                        static_cast<double>(std::max<int64_t>(1, groups_[g].options.slots));
    if (best && load >= lowest) continue;
    best = g;
    lowest = load;
  }
  return best;
}

}  // namespace motley::actors
