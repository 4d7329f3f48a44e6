// The supervisor spawns the fleet and watches it. A sampler that dies is replaced, a bounded number of times; any other
// death ends the run with its cause.
#pragma once

#include <set>

#include "actors/messages.h"

namespace motley::actors {

class Supervisor {
 public:
  explicit Supervisor(caf::event_based_actor* self) : self_(self) {}
  /// `main` gets the run's rows, notes and end. `gate`: where samplers join; null: nowhere.
  caf::behavior start(FleetPtr fleet, const StartingPointPtr& start, caf::actor main, caf::actor gate);

 private:
  struct Member {
    std::string name;
    caf::actor handle;
    std::optional<uint64_t> replica{};  // of a sampler that serves or is to serve
    size_t group = 0;                   // of a sampler
    bool sampler = false;
  };
  void spawn_fleet(const StartingPointPtr& start);
  void spawn_sampler(uint64_t replica, size_t group, std::string name);
  /// One more sampler of the group in this process; its number.
  caf::result<uint64_t> add_replica(size_t group);
  void retire(uint64_t replica);
  void hangs(uint64_t replica);
  Member* sampler_of(uint64_t replica);
  void watch(Member member);
  void down(const caf::down_msg& message);
  /// A sampler gets a successor, a bounded number of times; anybody else's end is the run's.
  void replace(const Member& lost, const std::string& cause);
  void restart(const Member& lost, const std::string& cause);
  void shut_down();

  caf::event_based_actor* self_;
  FleetPtr fleet_;
  caf::actor main_, plane_, router_, learner_, gate_;
  std::map<caf::actor_addr, Member> members_;
  std::map<uint64_t, int> restarts_;   // by replica
  std::set<uint64_t> retired_;         // replicas that were told to go
  std::vector<uint64_t> first_extra_;  // by group: the number behind the names of those that were added
  bool over_ = false, shutting_down_ = false;
};

caf::behavior supervisor(caf::stateful_actor<Supervisor>* self, FleetPtr fleet, const StartingPointPtr& start,
                         caf::actor main, caf::actor gate);

}  // namespace motley::actors
