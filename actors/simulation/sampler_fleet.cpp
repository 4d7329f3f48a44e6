#include "actors/simulation/sampler_fleet.h"

#include <algorithm>

#include "actors/simulation/draw.h"

namespace motley::simulation {
namespace {

constexpr double kHour = 3600.0;  // seconds

std::vector<actors::Placement::Group> placement_groups(const FleetPlan& plan) {
  std::vector<actors::Placement::Group> groups;
  for (const GroupPlan& group : plan.samplers)
    groups.push_back({.share = group.capacity, .slots = group.max_sequences});
  return groups;
}

}  // namespace

EngineSpeed engine_speed(const GroupPlan& group) {
  const auto slots = static_cast<double>(group.max_sequences);
  const double full = slots / group.tokens_per_second;  // seconds of a step
  const double alone = std::min(full, 1.0 / group.alone_tokens_per_second.value_or(group.tokens_per_second / slots));
  EngineSpeed speed{.slots = group.max_sequences};
  speed.sequence_seconds = slots > 1 ? (full - alone) / (slots - 1) : 0.0;
  speed.step_seconds = alone - speed.sequence_seconds;
  if (group.prefill_tokens_per_second) speed.prefill_seconds = 1.0 / *group.prefill_tokens_per_second;
  return speed;
}

SamplerFleet::SamplerFleet(const FleetPlan& plan, EventQueue& events)
    : plan_(plan), events_(events), placement_(actors::parse_routing(plan.run.routing), placement_groups(plan)) {
  for (size_t g = 0; g < plan.samplers.size(); ++g) {
    groups_.push_back({.speed = engine_speed(plan.samplers[g])});
    for (int64_t i = 0; i < plan.samplers[g].replicas; ++i) {
      const uint32_t id = start(0.0, g);
      serve(0.0, {.subject = id, .generation = replicas_[id].life});
    }
  }
}

void SamplerFleet::count_time(double now, Group& group) {
  const double hours = (now - group.since) / kHour;
  group.use.paid_hours += hours * static_cast<double>(group.serving + group.starting + group.leaving);
  group.use.serving_hours += hours * static_cast<double>(group.serving + group.leaving);
  group.use.capacity_tokens += hours * kHour * group.capacity;
  group.since = now;
}

uint32_t SamplerFleet::start(double now, size_t g) {
  Group& group = groups_[g];
  count_time(now, group);
  ++group.starting;
  ++group.use.starts;
  uint32_t id = static_cast<uint32_t>(replicas_.size());
  if (free_.empty()) {
    replicas_.emplace_back();
  } else {
    id = free_.back();
    free_.pop_back();
  }
  Replica& replica = replicas_[id];
  replica.group = g;
  replica.state = State::starting;
  ++replica.life;
  return id;
}

void SamplerFleet::start_later(double now, size_t g) {
  const uint32_t id = start(now, g);
  events_.push(now + plan_.samplers[g].start_seconds, EventKind::replica_serves, id, replicas_[id].life);
}

bool SamplerFleet::serve(double now, const Event& event) {
  Replica& replica = replicas_[event.subject];
  if (replica.life != event.generation || replica.state != State::starting) return false;
  Group& group = groups_[replica.group];
  const GroupPlan& plan = plan_.samplers[replica.group];
  count_time(now, group);
  EngineSpeed speed = group.speed;
  kernels::RandomStream random = stream(plan_.seed, Draw::speed, replica.group, group.started);
  const double faster = factor(random, plan.speed_spread);
  speed.step_seconds /= faster;
  speed.sequence_seconds /= faster;
  speed.prefill_seconds /= faster;
  replica.model.emplace(speed, now, version_);
  replica.state = State::serving;
  --group.starting;
  ++group.serving;
  group.capacity += speed.capacity();
  placement_.add(event.subject, replica.group, speed.capacity());
  if (plan.failures_per_hour > 0) {
    kernels::RandomStream life = stream(plan_.seed, Draw::life, replica.group, group.started);
    events_.push(now + draw_exponential(kHour / plan.failures_per_hour, life), EventKind::replica_fails, event.subject,
                 replica.life);
  }
  ++group.started;
  return true;
}

std::optional<uint32_t> SamplerFleet::place(std::optional<uint32_t> replica, std::optional<size_t> group) {
  if (replica && placement_.place_at(*replica)) return replica;
  std::optional<uint64_t> chosen;
  if (group) {
    chosen = placement_.place_in(*group);
    if (!chosen && groups_[*group].starting > 0) return std::nullopt;
  }
  if (!chosen) chosen = placement_.place();
  return chosen ? std::optional(static_cast<uint32_t>(*chosen)) : std::nullopt;
}

void SamplerFleet::submit(double now, uint32_t id, uint32_t episode, int64_t tokens, double prefill) {
  ReplicaModel& model = *replicas_[id].model;
  const int64_t before = model.waiting();
  model.submit(now, episode, tokens, prefill);
  ++sessions_;
  count_queue(model, before);
  plan_next(id);
}

void SamplerFleet::plan_next(uint32_t id) {
  Replica& replica = replicas_[id];
  ++replica.planned;
  if (const auto next = replica.model->next()) events_.push(*next, EventKind::reply_ends, id, replica.planned);
}

void SamplerFleet::take_ended(double now, const Event& event, std::vector<ReplicaModel::Reply>& ended) {
  Replica& replica = replicas_[event.subject];
  if (replica.planned != event.generation || !replica.model) return;
  const int64_t before = replica.model->waiting();
  replica.model->take_ended(now, ended);
  count_queue(*replica.model, before);
  sessions_ -= static_cast<int64_t>(ended.size());
  for (size_t i = 0; i < ended.size(); ++i) placement_.ended(event.subject);
  plan_next(event.subject);
  if (replica.state == State::leaving && replica.model->sessions() == 0) leave(now, event.subject);
}

bool SamplerFleet::fail(double now, const Event& event, std::vector<ReplicaModel::Reply>& interrupted) {
  Replica& replica = replicas_[event.subject];
  if (replica.life != event.generation || !replica.model) return false;
  const size_t g = replica.group;
  const int64_t before = replica.model->waiting();
  interrupted = replica.model->interrupt(now);
  sessions_ -= static_cast<int64_t>(interrupted.size());
  count_queue(*replica.model, before);
  ++groups_[g].use.failures;
  leave(now, event.subject);
  // A fixed fleet replaces what it loses; else that is for the autoscaler to say.
  if (!plan_.autoscaler.enabled) start_later(now, g);
  return true;
}

void SamplerFleet::leave(double now, uint32_t id) {
  Replica& replica = replicas_[id];
  Group& group = groups_[replica.group];
  count_time(now, group);
  placement_.remove(id);
  if (replica.state == State::starting) --group.starting;
  if (replica.state == State::leaving) --group.leaving;
  if (replica.state == State::serving) {
    --group.serving;
    group.capacity -= replica.model->capacity();
  }
  if (replica.model) {
    replica.model->advance(now);
    collect(*replica.model, group.use);
    replica.model.reset();
  }
  if (group.serving == 0) group.capacity = 0.0;  // and nothing of rounding
  replica.state = State::gone;
  ++replica.life;
  ++replica.planned;
  free_.push_back(id);
}

void SamplerFleet::stop_one(double now, size_t g) {
  std::optional<uint32_t> victim;
  for (uint32_t id = 0; id < replicas_.size(); ++id) {
    const Replica& replica = replicas_[id];
    if (replica.group != g || (replica.state != State::starting && replica.state != State::serving)) continue;
    if (replica.state == State::starting) {
      victim = id;
      break;
    }
    if (!victim || replica.model->sessions() < replicas_[*victim].model->sessions()) victim = id;
  }
  if (!victim) return;
  Replica& replica = replicas_[*victim];
  ++groups_[g].use.stops;
  if (replica.state == State::starting || replica.model->sessions() == 0) {
    leave(now, *victim);
    return;
  }
  // It finishes the replies that it has; the episodes' next turns go elsewhere in the group.
  count_time(now, groups_[g]);
  placement_.remove(*victim);
  replica.state = State::leaving;
  --groups_[g].serving;
  ++groups_[g].leaving;
  groups_[g].capacity -= replica.model->capacity();
}

void SamplerFleet::obey(double now, const actors::ScalingDecision& change) {
  for (size_t g = 0; g < change.size(); ++g) {
    for (int64_t i = 0; i < change[g]; ++i) start_later(now, g);
    for (int64_t i = 0; i > change[g]; --i) stop_one(now, g);
  }
}

void SamplerFleet::swap(double now, uint64_t version) {
  version_ = version;
  for (uint32_t id = 0; id < replicas_.size(); ++id) {
    Replica& replica = replicas_[id];
    if (!replica.model) continue;
    const double pause = plan_.samplers[replica.group].swap_seconds;
    replica.model->swap(now, version, pause);
    if (pause > 0) plan_next(id);
  }
}

std::vector<actors::ScalingGroup> SamplerFleet::scaling_groups() const {
  std::vector<actors::ScalingGroup> groups;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const GroupPlan& plan = plan_.samplers[g];
    groups.push_back({.minimum = plan.minimum.value_or(plan.replicas),
                      .maximum = plan.maximum.value_or(plan.replicas),
                      .price_per_hour = plan.price_per_hour,
                      .start_seconds = plan.start_seconds,
                      .capacity = plan.tokens_per_second,
                      .slots = plan.max_sequences,
                      .serving = groups_[g].serving,
                      .starting = groups_[g].starting,
                      .leaving = groups_[g].leaving});
  }
  return groups;
}

void SamplerFleet::collect(const ReplicaModel& model, GroupUse& use) const {
  use.busy_hours += model.busy_seconds() / kHour;
  use.tokens += model.tokens();
}

std::vector<GroupUse> SamplerFleet::use(double now) {
  std::vector<GroupUse> all;
  for (Group& group : groups_) {
    count_time(now, group);
    all.push_back(group.use);
  }
  for (Replica& replica : replicas_) {
    if (!replica.model) continue;
    replica.model->advance(now);
    collect(*replica.model, all[replica.group]);
  }
  return all;
}

double SamplerFleet::tokens(double now) {
  double sum = 0.0;
  for (const GroupUse& group : use(now)) sum += group.tokens;
  return sum;
}

}  // namespace motley::simulation
