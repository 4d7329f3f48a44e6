#include "actors/router.h"

#include <algorithm>
#include <cmath>

#include "actors/policy/losses.h"
#include "actors/system.h"

namespace motley::actors {

constexpr std::chrono::milliseconds kWatchInterval{500};

caf::behavior Router::start(FleetPtr fleet, caf::actor supervisor) {
  fleet_ = std::move(fleet);
  supervisor_ = std::move(supervisor);
  groups_.resize(fleet_->experiment.samplers.size());
  std::vector<Placement::Group> options;
  std::vector<std::optional<double>> fixed;
  std::vector<double> replicas;  // as configured: a replica that is lost for a while changes no choice of lock-step
  uint64_t next = 0;             // replicas are numbered group by group
  for (size_t g = 0; g < groups_.size(); ++g) {
    const SamplerGroupOptions& group = fleet_->experiment.samplers[g];
    for (int64_t i = 0; i < group.replicas; ++i) groups_[g].expected.insert(next++);
    options.push_back({.share = group.capacity, .slots = group.max_sequences});
    fixed.push_back(group.capacity);
    replicas.push_back(static_cast<double>(group.replicas));
  }
  placement_.emplace(parse_routing(fleet_->experiment.run.routing), std::move(options));
  lock_step_shares_ = group_shares(fixed, replicas);
  self_->delayed_send(self_, kWatchInterval, WatchTick{});
  return {
      [this](const OpenSessions&, const SessionRequestsPtr& requests) { open(*requests); },
      [this](const Decoded& done, const StepOutputsPtr& outputs) { decoded(done, *outputs); },
      [this](const ReplicaReady& ready) { joined(ready, caf::actor_cast<caf::actor>(self_->current_sender())); },
      [this](const Calibrated& result) {
        Replica* const replica = sender(result.replica);
        if (!replica) return;
        replica->capacity.add(static_cast<double>(result.tokens), static_cast<double>(result.busy_ns) * 1e-9);
        calibrating_.reset();
        serve(result.replica);
        calibrate_next();
      },
      [this](const ReplicaLost& loss) { lost(loss); },
      [this](const ReplicaLeft& message) { left(message.replica); },
      [this](WatchTick) {
        watch();
        self_->delayed_send(self_, kWatchInterval, WatchTick{});
      },
      [this](const Note& note) { self_->send(supervisor_, note); },
      [this](RateQuery) { return rates(); },
      [this](FleetQuery) { return seen(); },
  };
}

GroupRates Router::rates() const {
  const auto now = std::chrono::steady_clock::now();
  GroupRates rates;
  rates.at_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(now.time_since_epoch()).count();
  for (const Group& group : groups_) {
    rates.tokens.push_back(group.tokens);
    rates.busy_ns.push_back(group.busy_ns);
    rates.steps.push_back(group.steps);
    rates.rows.push_back(group.rows);
    rates.prefill_rows.push_back(group.prefill_rows);
    rates.shared_rows.push_back(group.shared_rows);
    rates.kept_rows.push_back(group.kept_rows);
    rates.replicas.push_back(static_cast<uint64_t>(group.time.count()));
    rates.replica_ns.push_back(static_cast<uint64_t>(group.time.total(now).count()));
  }
  return rates;
}

FleetSeen Router::seen() const {
  FleetSeen seen;
  for (const auto& [id, replica] : replicas_) {
    seen.replicas.push_back(id);
    seen.groups.push_back(replica.group);
    seen.serving.push_back(placement_->serves(id) ? 1 : 0);
    seen.sessions.push_back(placement_->serves(id) ? static_cast<uint64_t>(placement_->sessions(id)) : 0);
    seen.tokens_per_second.push_back(static_cast<uint64_t>(std::llround(replica.capacity.tokens_per_second())));
    seen.instances.push_back(replica.instance);
  }
  seen.queued = waiting_.size();
  for (const Group& group : groups_) {
    seen.group_tokens.push_back(group.tokens);
    seen.busy_ns.push_back(group.busy_ns);
    seen.tokens += group.tokens;
    seen.queued += group.waiting.size();
  }
  return seen;
}

Router::Replica* Router::sender(uint64_t replica) {
  const auto found = replicas_.find(replica);
  if (found == replicas_.end() || found->second.handle != self_->current_sender()) return nullptr;
  found->second.heard = std::chrono::steady_clock::now();
  return &found->second;
}

void Router::open(const std::vector<SessionRequest>& requests) {
  const auto owner = caf::actor_cast<caf::actor>(self_->current_sender());
  Outbox outbox;
  for (const SessionRequest& request : requests) {
    Session session{.request = request, .records = {}, .group = request.group, .owner = owner};
    const auto [place_at, added] = sessions_.emplace(request.session, std::move(session));
    if (!added) throw std::logic_error("session " + std::to_string(request.session) + " was opened twice");
    place(request.session, place_at->second, outbox);
  }
  flush(outbox);
}

std::optional<uint64_t> Router::choose_replica(const Session& session) {
  const SessionRequest& request = session.request;
  // The cache of the turns before is where they were.
  if (request.replica && session.losses == 0 && placement_->place_at(*request.replica)) return request.replica;
  if (session.group && (placement_->serving(*session.group) > 0 || !groups_[*session.group].expected.empty()))
    return placement_->place_in(*session.group);
  if (!fleet_->lock_step()) return placement_->place();
  return placement_->place_in(choice_by_number(lock_step_shares_, request.session));
}

void Router::place(uint64_t id, Session& session, Outbox& outbox) {
  session.replica = choose_replica(session);
  if (!session.replica) {
    (session.group ? groups_[*session.group].waiting : waiting_).push_back(id);
    return;
  }
  Replica& replica = replicas_.at(*session.replica);
  session.group = replica.group;
  if (placement_->overfull(*session.replica)) {  // it waits here, where whoever has a slot first can take it
    placement_->ended(*std::exchange(session.replica, std::nullopt));
    groups_[replica.group].waiting.push_back(id);
    return;
  }
  if (placement_->sessions(*session.replica) == 1) replica.heard = std::chrono::steady_clock::now();
  outbox[*session.replica].push_back(request_of(id, session));
}

GenerateRequest Router::request_of(uint64_t id, const Session& session) const {
  const SamplingOptions& sampling = fleet_->experiment.sampling;
  GenerateRequest request;
  request.id = id;
  request.tokens = session.request.tokens;
  request.stop_tokens = {fleet_->tokenizer.eos()};
  request.tokens.insert(request.tokens.end(), session.records.tokens.begin(), session.records.tokens.end());
  request.max_new_tokens = session.request.max_tokens - static_cast<int64_t>(session.records.size());
  request.rule = {
      .temperature = sampling.temperature, .top_p = sampling.top_p, .top_k = static_cast<int32_t>(sampling.top_k)};
  request.record = fleet_->experiment.record_kind();
  request.record_top_k = sampling.record_top_k;
  // Every life of a session draws anew: the tokens that killed a sampler do not come again.
  request.key = {.seed = fleet_->experiment.seed,
                 .purpose = kernels::Purpose::train,
                 .session = session.request.random_session,
                 .attempt = fleet_->attempt * kMaxLosses + session.losses};
  request.vocabulary = fleet_->tokenizer.size();
  return request;
}

void Router::fill(size_t group, Outbox& outbox) {
  std::deque<uint64_t>& waiting = groups_[group].waiting;
  for (size_t tries = waiting.size(); tries > 0; --tries) {
    const uint64_t id = waiting.front();
    waiting.pop_front();
    Session& session = sessions_.at(id);
    place(id, session, outbox);
    if (session.replica) continue;
    // No slot: the first to come stays the first.
    waiting.push_front(waiting.back());
    waiting.pop_back();
    return;
  }
}

void Router::place_waiting() {
  std::vector<uint64_t> all(waiting_.begin(), waiting_.end());
  waiting_.clear();
  for (Group& group : groups_) {
    all.insert(all.end(), group.waiting.begin(), group.waiting.end());
    group.waiting.clear();
  }
  Outbox outbox;
  for (const uint64_t id : all) {
    Session& session = sessions_.at(id);
    if (session.records.size() == 0) session.group = session.request.group;  // nothing holds it to one
    place(id, session, outbox);
  }
  flush(outbox);
}

void Router::flush(Outbox& outbox) {
  for (auto& [replica, requests] : outbox) {
    const Decode message{requests.size()};
    self_->send(replicas_.at(replica).handle, message,
                std::make_shared<std::vector<GenerateRequest>>(std::move(requests)));
  }
}

void Router::decoded(const Decoded& done, std::vector<StepOutput>& outputs) {
  Replica* const replica = sender(done.replica);
  if (!replica) return;  // what a replica says that was given up is too late: its sessions went on elsewhere
  Group& group = groups_[replica->group];
  const DecodeCounts& counts = done.counts;
  group.tokens += counts.tokens;
  group.busy_ns += counts.busy_ns;
  group.steps += counts.steps;
  group.rows += counts.rows;
  group.prefill_rows += counts.prefill_rows;
  group.shared_rows += counts.shared_rows;
  group.kept_rows += counts.kept_rows;
  if (counts.full_ns > 0) {
    replica->capacity.add(static_cast<double>(counts.full_tokens), static_cast<double>(counts.full_ns) * 1e-9);
    placement_->set_capacity(done.replica, replica->capacity.tokens_per_second());
  }
  for (StepOutput& output : outputs) {
    Session& session = sessions_.at(output.id);
    if (session.records.size() == 0) {
      session.records = std::move(output.records);
    } else {
      session.records.append(output.records);
    }
    if (output.finish == FinishReason::none) continue;
    placement_->ended(done.replica);
    finish(output.id, session, output.finish, std::move(output.error));
  }
  Outbox outbox;
  fill(replica->group, outbox);
  flush(outbox);
  send_finished();
}

void Router::finish(uint64_t id, Session& session, FinishReason reason, std::string failure) {
  FinishedSession done{.session = id,
                       .group = session.group.value(),
                       .replica = session.replica.value(),
                       .attempt = fleet_->attempt * kMaxLosses + session.losses,
                       .prompt = std::move(session.request.tokens),
                       .records = std::move(session.records),
                       .finish = reason,
                       .failure = std::move(failure)};
  if (reason == FinishReason::failed && done.failure.empty()) done.failure = "the sampler gave no reason";
  finished_.emplace_back(std::move(session.owner), std::move(done));
  sessions_.erase(id);
}

void Router::send_finished() {
  while (!finished_.empty()) {
    const caf::actor owner = finished_.back().first;
    auto batch = std::make_shared<std::vector<FinishedSession>>();
    std::erase_if(finished_, [&](auto& entry) {
      if (entry.first != owner) return false;
      batch->push_back(std::move(entry.second));
      return true;
    });
    const SessionsFinished message{batch->size()};
    self_->send(owner, message, std::move(batch));
  }
}

bool Router::measures(size_t group) const {
  const Experiment& experiment = fleet_->experiment;
  return experiment.run.async && parse_routing(experiment.run.routing) == Routing::capacity &&
         !experiment.samplers.at(group).capacity;
}

void Router::joined(const ReplicaReady& ready, caf::actor handle) {
  const auto now = std::chrono::steady_clock::now();
  replicas_[ready.replica] = Replica{
      .group = ready.group, .handle = std::move(handle), .capacity = {}, .heard = now, .instance = ready.instance};
  groups_[ready.group].time.change(1, now);
  if (!measures(ready.group)) {
    serve(ready.replica);
    return;
  }
  to_calibrate_.push_back(ready.replica);
  calibrate_next();
}

void Router::calibrate_next() {
  if (calibrating_ || to_calibrate_.empty()) return;
  calibrating_ = to_calibrate_.front();
  to_calibrate_.erase(to_calibrate_.begin());
  replicas_.at(*calibrating_).heard = std::chrono::steady_clock::now();
  self_->send(replicas_.at(*calibrating_).handle, Calibrate{});
}

void Router::serve(uint64_t id) {
  const Replica& replica = replicas_.at(id);
  groups_[replica.group].expected.erase(id);
  placement_->add(id, replica.group, replica.capacity.tokens_per_second());
  place_waiting();
  // An autoscaler may stop some of the first before the last of them serves.
  const uint64_t wanted = fleet_->experiment.autoscaler.enabled ? 1 : std::max<uint64_t>(1, fleet_->replicas());
  if (placement_->serving() >= wanted && !std::exchange(ready_, true)) self_->send(supervisor_, FleetReady{});
}

std::vector<uint64_t> Router::remove(uint64_t id) {
  placement_->remove(id);
  std::erase(to_calibrate_, id);
  groups_[replicas_.at(id).group].time.change(-1, std::chrono::steady_clock::now());
  replicas_.erase(id);
  if (calibrating_ == id) {
    calibrating_.reset();
    calibrate_next();
  }
  std::vector<uint64_t> orphans;
  for (const auto& [session_id, session] : sessions_)
    if (session.replica == id) orphans.push_back(session_id);
  std::sort(orphans.begin(), orphans.end());
  return orphans;
}

void Router::lost(const ReplicaLost& loss) {
  const auto found = replicas_.find(loss.replica);
  if (found == replicas_.end()) return;  // died before it was ready
  if (loss.replaced) groups_[found->second.group].expected.insert(loss.replica);
  Outbox outbox;
  for (const uint64_t orphan : remove(loss.replica)) {
    Session& session = sessions_.at(orphan);
    if (++session.losses < kMaxLosses) {
      place(orphan, session, outbox);
    } else {
      finish(orphan, session, FinishReason::failed, "it lost two samplers, the second: " + loss.cause);
    }
  }
  flush(outbox);
  send_finished();
  place_waiting();  // a group that has nobody left and expects nobody gives its sessions to others
}

void Router::left(uint64_t id) {
  for (Group& group : groups_) group.expected.erase(id);
  if (replicas_.contains(id)) {
    Outbox outbox;
    for (const uint64_t orphan : remove(id)) place(orphan, sessions_.at(orphan), outbox);
    flush(outbox);
  }
  place_waiting();
}

void Router::watch() {
  const auto now = std::chrono::steady_clock::now();
  const std::chrono::milliseconds limit = fleet_->hang_limit();
  for (auto& [id, replica] : replicas_) {
    const bool works = id == calibrating_ || (placement_->serves(id) && placement_->sessions(id) > 0);
    if (!works || now - replica.heard <= limit) continue;
    replica.heard = now;  // said once: its successor may have the same number
    self_->send(supervisor_, ReplicaHangs{id});
  }
}

caf::behavior router(caf::stateful_actor<Router>* self, FleetPtr fleet, caf::actor supervisor) {
  install_handlers(self);
  return self->state.start(std::move(fleet), std::move(supervisor));
}

}  // namespace motley::actors
