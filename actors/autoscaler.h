// The autoscaler: looks at the fleet and at the learner's hunger, decides by actors/policy/autoscaling.h, and has
// replicas started and stopped, in this process by the supervisor and elsewhere by provisioners. Each thing that it
// does stands in the log once, with its reason.
#pragma once

#include "actors/messages.h"
#include "actors/policy/autoscaling.h"
#include "actors/policy/instance_ledger.h"
#include "actors/policy/learner_pace.h"
#include "actors/provision/provisioner.h"

namespace motley::actors {

class AutoscalerActor {
 public:
  explicit AutoscalerActor(caf::event_based_actor* self) : self_(self) {}
  caf::behavior start(FleetPtr fleet, caf::actor supervisor, caf::actor router);

 private:
  struct Group {
    InstanceLedger ledger;
    std::string prefix;                  // of its instances' names
    caf::actor provisioner;              // null: replicas are started in this process
    std::map<int64_t, uint64_t> local;   // those replicas, by the instance's number
    bool known = true;                   // what runs from an earlier process has been listed
    bool listing = false, deaf = false;  // deaf: the last listing failed, which was said
    // As it was last seen.
    std::map<int64_t, uint64_t> serving;
    int64_t foreign = 0;    // replicas that serve and are nobody's instances
    double capacity = 0.0;  // tokens per second of a replica; 0: unknown
  };

  void add_group(size_t group, uint64_t first_replica);
  ProvisionContext context(size_t group) const;
  void tick();
  void look();
  void see(const FleetSeen& seen);
  void act(const FleetSeen& seen);
  std::vector<ScalingGroup> scaling_groups(double now) const;
  double expected_capacity(size_t group) const;
  void obey(size_t group, int64_t change, const std::string& reason, const std::map<uint64_t, int64_t>& sessions);
  void start_one(size_t group);
  void stop_one(size_t group, int64_t number);
  /// Stops what is due, and ends the run when nothing serves and nothing can be started any more.
  void settle();
  void started(const InstanceStarted& answer);
  void stopped(const InstanceStopped& answer);
  void listed(const InstanceList& list);
  void close();
  std::string reason_text(const FleetLoad& load, double capacity) const;
  void say(size_t group, int64_t number, const std::string& text);
  double now() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count(); }
  const SamplerGroupOptions& options(size_t group) const { return fleet_->experiment.samplers[group]; }

  caf::event_based_actor* self_;
  FleetPtr fleet_;
  caf::actor supervisor_, router_;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::optional<Autoscaler> policy_;
  LearnerPace pace_;
  std::vector<Group> groups_;
  int64_t serving_ = 0;  // replicas, whoever's, as last seen
  bool looking_ = false, closing_ = false;
};

caf::behavior autoscaler(caf::stateful_actor<AutoscalerActor>* self, FleetPtr fleet, caf::actor supervisor,
                         caf::actor router);

}  // namespace motley::actors
