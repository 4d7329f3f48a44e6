// The provisioner of one group behind an actor with a thread of its own, since its calls block. Stops whatever still
// runs when the actor ends.
#pragma once

#include <set>

#include "actors/messages.h"
#include "actors/provision/provisioner.h"

namespace motley::actors {

class ProvisionerActor {
 public:
  explicit ProvisionerActor(caf::event_based_actor* self) : self_(self) {}
  /// `notes` hears what could not be stopped at the end.
  caf::behavior start(const FleetPtr& fleet, uint64_t group, const ProvisionContext& context, caf::actor notes);

 private:
  InstanceStarted start_one(uint64_t number);
  InstanceStopped stop_one(uint64_t number);
  InstanceList list();
  void stop_all();
  std::string instance_name(uint64_t number) const { return prefix_ + std::to_string(number); }

  caf::event_based_actor* self_;
  uint64_t group_ = 0;
  std::string prefix_;
  caf::actor notes_;
  std::unique_ptr<Provisioner> provisioner_;
  std::set<uint64_t> running_;  // that it started or found
};

caf::behavior provisioner_actor(caf::stateful_actor<ProvisionerActor>* self, const FleetPtr& fleet, uint64_t group,
                                const ProvisionContext& context, caf::actor notes);

}  // namespace motley::actors
