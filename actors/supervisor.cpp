#include "actors/supervisor.h"

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

caf::behavior Supervisor::start(FleetPtr fleet, const StartingPointPtr& start, caf::actor main) {
  fleet_ = std::move(fleet);
  main_ = std::move(main);
  self_->set_down_handler([this](const caf::down_msg& message) { down(message); });
  // Members are linked so that none outlives a supervisor that fails; their own deaths come as down messages.
  self_->set_exit_handler([](const caf::exit_msg&) {});
  spawn_fleet(start);
  return {
      [this](FleetReady) { self_->send(learner_, FleetReady{}); },
      [this](const Note& note) { self_->send(main_, note); },
      [this](StopRun) { self_->send<caf::message_priority::high>(learner_, StopRun{}); },
      [this](const RunFinished& finished, const SummaryPtr& summary) {
        if (!std::exchange(over_, true)) self_->send(main_, finished, summary);
      },
      [this](ShutDown) { shut_down(); },
  };
}

void Supervisor::spawn_fleet(const StartingPointPtr& start) {
  const auto me = caf::actor_cast<caf::actor>(self_);
  plane_ = self_->spawn<caf::detached>(weight_plane, fleet_);
  watch("weight plane", plane_);
  router_ = self_->spawn(router, fleet_, me);
  watch("router", router_);
  const auto evaluating = self_->spawn<caf::detached>(evaluator, fleet_);
  watch("evaluator", evaluating);
  learner_ =
      self_->spawn<caf::detached>(learner, fleet_, start, LearnerActor::Peers{plane_, router_, evaluating, me, main_});
  watch("learner", learner_);
  std::vector<caf::actor> workers;
  for (int64_t i = 0; i < fleet_->workers(); ++i) {
    workers.push_back(self_->spawn<caf::detached>(worker, fleet_));
    watch("worker " + std::to_string(i), workers.back());
  }
  const auto playing = self_->spawn(environment, fleet_, router_, learner_, workers);
  watch("environment", playing);
  for (uint64_t replica = 0; replica < fleet_->replicas(); ++replica) spawn_sampler(replica);
  self_->send(learner_, Begin{playing});
}

void Supervisor::spawn_sampler(uint64_t replica) {
  const auto handle = self_->spawn<caf::detached>(sampler, fleet_, replica, group_of(replica), plane_, router_);
  watch(sampler_name(replica), handle, replica);
}

void Supervisor::watch(std::string name, const caf::actor& handle, std::optional<uint64_t> replica) {
  members_[handle.address()] = {std::move(name), handle, replica};
  self_->link_to(handle);
  self_->monitor(handle);
}

size_t Supervisor::group_of(uint64_t replica) const {
  size_t group = 0;
  for (const SamplerGroupOptions& options : fleet_->experiment.samplers) {
    if (replica < static_cast<uint64_t>(options.replicas)) break;
    replica -= static_cast<uint64_t>(options.replicas);
    ++group;
  }
  return group;
}

std::string Supervisor::sampler_name(uint64_t replica) const {
  uint64_t first = 0;
  const size_t group = group_of(replica);
  for (size_t g = 0; g < group; ++g) first += static_cast<uint64_t>(fleet_->experiment.samplers[g].replicas);
  return "sampler " + fleet_->experiment.samplers[group].name + "/" + std::to_string(replica - first);
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
  const std::string cause = cause_text(self_->system(), message.reason);
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
  self_->send(router_, ReplicaLost{*lost.replica, cause});
  self_->send(plane_, ReplicaLost{*lost.replica, cause});
  spawn_sampler(*lost.replica);
}

void Supervisor::shut_down() {
  over_ = true;
  shutting_down_ = true;
  if (members_.empty()) self_->quit();
  for (const auto& [address, member] : members_) self_->send_exit(member.handle, caf::exit_reason::user_shutdown);
}

caf::behavior supervisor(caf::stateful_actor<Supervisor>* self, FleetPtr fleet, const StartingPointPtr& start,
                         caf::actor main) {
  install_handlers(self);
  return self->state.start(std::move(fleet), start, std::move(main));
}

}  // namespace motley::actors
