// The replicas of a simulated fleet: what serves, starts, leaves and fails, what it costs, and which replica a reply
// goes to, by the same placement as the router's.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "actors/policy/autoscaling.h"
#include "actors/policy/placement.h"
#include "actors/simulation/event_queue.h"
#include "actors/simulation/fleet_plan.h"
#include "actors/simulation/replica_model.h"

namespace motley::simulation {

/// Of one group since the start.
struct GroupUse {
  double paid_hours = 0.0, serving_hours = 0.0, busy_hours = 0.0;  // of replicas
  double tokens = 0.0, capacity_tokens = 0.0;                      // drawn; and what serving replicas could have drawn
  int64_t starts = 0, stops = 0, failures = 0;
};

class SamplerFleet {
 public:
  SamplerFleet(const FleetPlan& plan, EventQueue& events);

  /// The same rules as the router's: where it was, else in its group, else (a group that will not come back, or none
  /// yet) by the policy. Nothing if it must wait.
  std::optional<uint32_t> place(std::optional<uint32_t> replica, std::optional<size_t> group);
  void submit(double now, uint32_t replica, uint32_t episode, int64_t tokens, double prefill);
  void take_ended(double now, const Event& event, std::vector<ReplicaModel::Reply>& ended);
  /// False for an event that is void.
  bool serve(double now, const Event& event);
  bool fail(double now, const Event& event, std::vector<ReplicaModel::Reply>& interrupted);
  void swap(double now, uint64_t version);
  /// What an autoscaler asked for.
  void obey(double now, const actors::ScalingDecision& change);

  size_t group_of(uint32_t replica) const { return replicas_[replica].group; }
  std::vector<actors::ScalingGroup> scaling_groups() const;
  int64_t queued() const { return queued_; }
  int64_t sessions() const { return sessions_; }  // those queued included
  /// As of `now`.
  std::vector<GroupUse> use(double now);
  double tokens(double now);

 private:
  enum class State : uint8_t { gone, starting, serving, leaving };
  struct Replica {
    size_t group = 0;
    State state = State::gone;
    uint32_t life = 0, planned = 0;  // generations of its events
    std::optional<ReplicaModel> model;
  };
  struct Group {
    EngineSpeed speed;
    int64_t serving = 0, starting = 0, leaving = 0;
    double capacity = 0.0;  // of what serves
    double since = 0.0;     // up to when `use` is counted
    GroupUse use;
    uint64_t started = 0;
  };
  uint32_t start(double now, size_t group);
  void start_later(double now, size_t group);
  void stop_one(double now, size_t group);
  void leave(double now, uint32_t id);
  void plan_next(uint32_t id);
  void count_time(double now, Group& group);
  void count_queue(const ReplicaModel& model, int64_t before) { queued_ += model.waiting() - before; }
  void collect(const ReplicaModel& model, GroupUse& use) const;

  const FleetPlan& plan_;
  EventQueue& events_;
  std::vector<Group> groups_;
  std::vector<Replica> replicas_;
  std::vector<uint32_t> free_;
  actors::Placement placement_;
  uint64_t version_ = 0;
  int64_t queued_ = 0, sessions_ = 0;
};

/// Of a replica of this group, before its own speed.
EngineSpeed engine_speed(const GroupPlan& group);

}  // namespace motley::simulation
