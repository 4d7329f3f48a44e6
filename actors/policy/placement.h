// Which replica a session goes to: who can serve, how much and how loaded, and the policies that look at it, by name.
// Pure: used by the router actor and the simulator alike.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "actors/policy/load_tree.h"
#include "actors/policy/routing.h"

namespace motley::actors {

enum class Routing : uint8_t {
  capacity,      // to the groups in proportion to their capacity; in a group, to the replica with the fewest sessions
  least_loaded,  // to the replica with the smallest share of its slots in use, whatever its group
  round_robin,   // to the replicas in turn, by their numbers
};
const std::vector<std::string>& routing_names();
/// Throws std::invalid_argument for any other name.
Routing parse_routing(std::string_view name);

class Placement {
 public:
  struct Group {
    std::optional<double> share;  // fixed, of the sessions (Routing::capacity)
    int64_t slots = 1;            // of each replica's engine, at least 1
  };
  Placement(Routing routing, const std::vector<Group>& groups);

  /// The replica serves from now on. `capacity`: tokens per busy second; only Routing::capacity looks at it, and not in
  /// a group of fixed share. Throws std::logic_error if it serves already, std::out_of_range for a group that is none.
  void add(uint64_t replica, size_t group, double capacity);
  /// It serves no more, and its sessions are no longer counted. Nothing happens if it does not serve.
  void remove(uint64_t replica);
  /// Nothing happens if it does not serve.
  void set_capacity(uint64_t replica, double capacity);
  bool serves(uint64_t replica) const { return seats_.contains(replica); }
  size_t serving(size_t group) const { return groups_[group].count; }
  size_t serving() const { return seats_.size(); }

  /// Each chooses a replica and counts a session there; nothing if none can serve. `place`: by the policy.
  std::optional<uint64_t> place();
  std::optional<uint64_t> place_in(size_t group);
  /// False if it does not serve.
  bool place_at(uint64_t replica);
  /// A session there ended. Nothing happens if it does not serve.
  void ended(uint64_t replica);
  /// Groups and sessions that have been placed and not ended; `replica` must serve.
  size_t group_of(uint64_t replica) const { return seats_.at(replica).group; }
  int64_t sessions(uint64_t replica) const;
  /// It has more of them than slots.
  bool overfull(uint64_t replica) const { return sessions(replica) > groups_[group_of(replica)].options.slots; }

 private:
  struct Seat {
    size_t group = 0, place = 0;
    double capacity = 0.0;
  };
  struct GroupState {
    Group options;
    LoadTree load;
    std::vector<uint64_t> replicas;  // by place
    std::vector<size_t> free;        // places
    size_t count = 0;
  };
  void count(const Seat& seat, int64_t change);
  std::optional<size_t> group_by_capacity();
  std::optional<size_t> group_by_load() const;
  std::optional<uint64_t> next_in_turn();

  Routing routing_;
  std::vector<GroupState> groups_;
  std::unordered_map<uint64_t, Seat> seats_;  // of those that serve
  ProportionalChoice choice_;
  std::vector<std::optional<double>> fixed_;
  std::set<uint64_t> ring_;  // round_robin: those that serve, and the last that was chosen
  std::optional<uint64_t> last_;
};

}  // namespace motley::actors
