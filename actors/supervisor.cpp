#include "actors/supervisor.h"

#include "actors/autoscaler.h"
#include "actors/environment.h"
#include "actors/evaluator.h"
#include "actors/learner.h"
#include "actors/router.h"
#include "actors/sampler.h"
#include "actors/system.h"
#include "actors/weight_plane.h"
#include "actors/worker.h"

namespace motley::actors {

constexpr int kMaxRestarts = 3;  // of one replica

caf::behavior Supervisor::start(FleetPtr fleet, const StartingPointPtr& start, caf::actor main, caf::actor gate) {
  fleet_ = std::move(fleet);
  main_ = std::move(main);
  gate_ = std::move(gate);
  self_->set_down_handler([this](const caf::down_msg& message) { down(message); });
  // Members are linked so that none outlives a supervisor that fails; their own deaths come as down messages.
  self_->set_exit_handler([](const caf::exit_msg&) {});
  spawn_fleet(start);
  return {
      [this](FleetReady) { self_->send(learner_, FleetReady{}); },
      [this](const Note& note) { self_->send(main_, note); },
      [this](const AddReplica& add) { return add_replica(add.group); },
      [this](const RetireReplica& message) { retire(message.replica); },
      [this](const ReplicaHangs& message) { hangs(message.replica); },
      [this](StopRun) { self_->send<caf::message_priority::high>(learner_, StopRun{}); },
      [this](const RunFinished& finished, const SummaryPtr& summary) {
        if (std::exchange(over_, true)) return;
        fleet_->finished = !finished.interrupted;
        self_->send(main_, finished, summary);
      },
      [this](ShutDown) { shut_down(); },
  };
}

void Supervisor::spawn_fleet(const StartingPointPtr& start) {
  const auto me = caf::actor_cast<caf::actor>(self_);
  plane_ = self_->spawn<caf::detached>(weight_plane, fleet_);
  watch({"weight plane", plane_});
  router_ = self_->spawn(router, fleet_, me);
  watch({"router", router_});
  const auto evaluating = self_->spawn<caf::detached>(evaluator, fleet_, me);
  watch({"evaluator", evaluating});
  caf::actor scaler;
  if (fleet_->experiment.autoscaler.enabled) {
    scaler = self_->spawn(autoscaler, fleet_, me, router_);
    watch({"autoscaler", scaler});
  }
  learner_ = self_->spawn<caf::detached>(learner, fleet_, start,
                                         LearnerActor::Peers{plane_, router_, evaluating, me, main_, scaler});
  watch({"learner", learner_});
  std::vector<caf::actor> workers;
  for (int64_t i = 0; i < fleet_->workers(); ++i) {
    workers.push_back(self_->spawn<caf::detached>(worker, fleet_));
    watch({"worker " + std::to_string(i), workers.back()});
  }
  const auto playing = self_->spawn(environment, fleet_, router_, learner_, workers);
  watch({"environment", playing});
  const auto& groups = fleet_->experiment.samplers;
  uint64_t replica = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    for (int64_t i = 0; i < groups[g].replicas; ++i)
      spawn_sampler(replica++, g, "sampler " + groups[g].name + "/" + std::to_string(i));
    first_extra_.push_back(static_cast<uint64_t>(groups[g].replicas));
  }
  if (gate_) {
    watch({"gate", gate_});
    self_->send(gate_, OpenGate{plane_, router_, me, playing, learner_});
  }
  self_->send(learner_, Begin{playing});
}

void Supervisor::spawn_sampler(uint64_t replica, size_t group, std::string name) {
  const auto handle = self_->spawn<caf::detached>(sampler, fleet_, replica, group, plane_, router_);
  watch({std::move(name), handle, replica, group, true});
}

caf::result<uint64_t> Supervisor::add_replica(size_t group) {
  if (over_) return caf::make_error(caf::sec::runtime_error, std::string("the run is over"));
  const uint64_t replica = fleet_->next_replica++;
  const std::string& name = fleet_->experiment.samplers.at(group).name;
  spawn_sampler(replica, group, "sampler " + name + "/" + std::to_string(first_extra_.at(group)++));
  return replica;
}

Supervisor::Member* Supervisor::sampler_of(uint64_t replica) {
  for (auto& [address, member] : members_)
    if (member.replica == replica) return &member;
  return nullptr;
}

void Supervisor::retire(uint64_t replica) {
  if (const Member* const member = sampler_of(replica)) {
    if (retired_.insert(replica).second) self_->send(member->handle, Retire{});
  } else if (gate_) {
    self_->send(gate_, RetireReplica{replica});
  }
}

void Supervisor::hangs(uint64_t replica) {
  const std::string cause =
      "it has work and has said nothing for " + std::to_string(fleet_->hang_limit().count() / 1000) + " s";
  Member* const member = sampler_of(replica);
  if (!member) {
    if (gate_) self_->send(gate_, ReplicaLost{replica, cause});
    return;
  }
  // Its thread cannot be taken from it: it ends when it wakes, and what it says then is not heard.
  const Member lost = *member;
  member->replica.reset();
  self_->send_exit(lost.handle, caf::exit_reason::kill);
  replace(lost, cause);
}

void Supervisor::watch(Member member) {
  const caf::actor handle = member.handle;
  members_[handle.address()] = std::move(member);
  self_->link_to(handle);
  self_->monitor(handle);
}

void Supervisor::down(const caf::down_msg& message) {
  auto found = members_.extract(message.source);
  if (found.empty()) return;
  const Member lost = std::move(found.mapped());
  if (shutting_down_) {
    if (members_.empty()) self_->quit();
    return;
  }
  if (over_) return;
  if (lost.replica && retired_.contains(*lost.replica)) {
    self_->send(plane_, ReplicaLost{*lost.replica, "it was retired"});
    return;
  }
  if (lost.sampler && !lost.replica) return;  // it hung, and has been replaced
  replace(lost, cause_text(self_->system(), message.reason));
}

void Supervisor::replace(const Member& lost, const std::string& cause) {
  if (lost.replica && restarts_[*lost.replica] < kMaxRestarts) {
    restart(lost, cause);
    return;
  }
  over_ = true;
  self_->send(main_, RunFailed{lost.name, cause});
}

void Supervisor::restart(const Member& lost, const std::string& cause) {
  const int count = ++restarts_[*lost.replica];
  std::string text = lost.name + " was lost (" + cause + ") and is replaced, " + std::to_string(count) +
                     " of at most " + std::to_string(kMaxRestarts) + " times; its sessions go on from their tokens";
  if (fleet_->lock_step()) text += "; this run is no longer bit-equal to an undisturbed one";
  self_->send(main_, Note{text});
  self_->send(router_, ReplicaLost{*lost.replica, cause, true});
  self_->send(plane_, ReplicaLost{*lost.replica, cause, true});
  spawn_sampler(*lost.replica, lost.group, lost.name);
}

void Supervisor::shut_down() {
  over_ = true;
  shutting_down_ = true;
  if (members_.empty()) self_->quit();
  for (const auto& [address, member] : members_) self_->send_exit(member.handle, caf::exit_reason::user_shutdown);
}

caf::behavior supervisor(caf::stateful_actor<Supervisor>* self, FleetPtr fleet, const StartingPointPtr& start,
                         caf::actor main, caf::actor gate) {
  install_handlers(self);
  return self->state.start(std::move(fleet), start, std::move(main), std::move(gate));
}

}  // namespace motley::actors
