// The supervisor spawns the fleet and watches it. A sampler that dies is replaced, a bounded number of times; any other
// death ends the run with its cause.
#pragma once

#include "actors/messages.h"

namespace motley::actors {

class Supervisor {
 public:
  explicit Supervisor(caf::event_based_actor* self) : self_(self) {}
  /// `main` gets the run's rows, notes and end.
  caf::behavior start(FleetPtr fleet, const StartingPointPtr& start, caf::actor main);

 private:
  struct Member {
    std::string name;
    caf::actor handle;
    std::optional<uint64_t> replica;
  };
  void spawn_fleet(const StartingPointPtr& start);
  void spawn_sampler(uint64_t replica);
  void watch(std::string name, const caf::actor& handle, std::optional<uint64_t> replica = std::nullopt);
  void down(const caf::down_msg& message);
  void restart(const Member& lost, const std::string& cause);
  void shut_down();
  size_t group_of(uint64_t replica) const;
  std::string sampler_name(uint64_t replica) const;

  caf::event_based_actor* self_;
  FleetPtr fleet_;
  caf::actor main_, plane_, router_, learner_;
  std::map<caf::actor_addr, Member> members_;
  std::map<uint64_t, int> restarts_;  // by replica
  bool over_ = false, shutting_down_ = false;
};

caf::behavior supervisor(caf::stateful_actor<Supervisor>* self, FleetPtr fleet, const StartingPointPtr& start,
                         caf::actor main);

}  // namespace motley::actors
