#include "actors/simulation/simulation.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <stdexcept>

#include "actors/policy/batching.h"
#include "actors/policy/learner_pace.h"
#include "actors/policy/losses.h"
#include "actors/simulation/draw.h"
#include "actors/simulation/sampler_fleet.h"

namespace motley::simulation {
namespace {

/// What a learner needs to know of a finished episode.
struct Sample {
  uint64_t group = 0;
  uint32_t sample = 0;
  uint32_t sampler_group = 0;
  uint64_t oldest = 0;       // weight version of its tokens
  double version_sum = 0.0;  // over its tokens
  int64_t tokens = 0;        // 0: it failed
  bool present = false;
};
uint64_t group_of(const Sample& sample) { return sample.group; }
uint32_t number_of(const Sample& sample) { return sample.sample; }
bool is_present(const Sample& sample) { return sample.present; }
std::optional<uint64_t> oldest_version_of(const Sample& sample) {
  return sample.tokens > 0 ? std::optional(sample.oldest) : std::nullopt;
}

struct Episode {
  uint64_t prompt = 0;
  uint32_t number = 0;  // of the prompt's samples
  uint32_t losses = 0;
  int64_t turn = 0, turns = 1;
  int64_t left = 0;      // tokens of the turn's reply
  double context = 0.0;  // tokens before it
  double unread = 0.0;   // of these, that its replica has not computed
  std::optional<uint32_t> replica;
  std::optional<size_t> group;
  std::optional<uint64_t> oldest;
  double version_sum = 0.0;
  int64_t tokens = 0;
};

class Simulation {
 public:
  explicit Simulation(const FleetPlan& plan)
      : plan_(plan),
        fleet_(plan, events_),
        collector_(plan.learner.group_size, false),
        waiting_(1 + plan.samplers.size()) {
    credits_ = plan.run.concurrency;
  }

  Result run() {
    if (plan_.autoscaler.enabled) {
      autoscaler_.emplace(plan_.autoscaler.resolved());
      events_.push(0.0, EventKind::scale);
    }
    issue();
    if (plan_.run.warmup_updates == 0) begin_measuring();
    while (!done_ && !events_.empty()) {
      const Event event = events_.pop();
      now_ = event.time;
      ++result_.events;
      handle(event);
    }
    if (!done_) result_.stopped = "nothing more can happen: no replica serves what waits";
    end_measuring();
    return result_;
  }

 private:
  void handle(const Event& event) {
    switch (event.kind) {
      case EventKind::reply_ends:
        return reply_ends(event);
      case EventKind::replica_serves:
        if (fleet_.serve(now_, event)) place_waiting();
        return;
      case EventKind::replica_fails:
        return replica_fails(event);
      case EventKind::turn_begins:
        return begin_turn(event.subject);
      case EventKind::scored:
        return deliver(event.subject, false);
      case EventKind::trained:
        return trained();
      case EventKind::update_closed:
        return update_closed();
      case EventKind::weights_live:
        return fleet_.swap(now_, event.subject);
      case EventKind::scale:
        return scale();
    }
  }

  // Episodes.
  void issue() {
    const int64_t size = plan_.learner.group_size;
    for (; credits_ >= size; credits_ -= size, ++next_prompt_)
      for (int64_t number = 0; number < size; ++number) open(next_prompt_, static_cast<uint32_t>(number));
  }
  uint64_t key(const Episode& episode) const { return kernels::mix(episode.prompt, episode.number); }

  void open(uint64_t prompt, uint32_t number) {
    uint32_t id = static_cast<uint32_t>(episodes_.size());
    if (free_.empty()) {
      episodes_.emplace_back();
    } else {
      id = free_.back();
      free_.pop_back();
    }
    Episode& episode = episodes_[id] = Episode{.prompt = prompt, .number = number};
    kernels::RandomStream random = stream(plan_.seed, Draw::turns, key(episode));
    episode.turns = draw(plan_.episodes.turns, random);
    episode.context = episode.unread = plan_.episodes.prompt_tokens;
    begin_turn(id);
  }

  void begin_turn(uint32_t id) {
    Episode& episode = episodes_[id];
    kernels::RandomStream random = stream(plan_.seed, Draw::reply, key(episode), static_cast<uint64_t>(episode.turn));
    episode.left = draw_reply(plan_.episodes, random);
    place(id);
  }

  void place(uint32_t id) {
    Episode& episode = episodes_[id];
    const auto replica = fleet_.place(episode.replica, episode.group);
    if (!replica) {
      waiting_[episode.group ? 1 + *episode.group : 0].push_back(id);
      ++waiting_count_;
      return;
    }
    if (replica != episode.replica) episode.unread = episode.context;  // its cache is elsewhere
    episode.replica = replica;
    episode.group = fleet_.group_of(*replica);
    fleet_.submit(now_, *replica, id, episode.left, std::exchange(episode.unread, 0.0));
  }

  void place_waiting() {
    for (std::deque<uint32_t>& queue : waiting_) {
      waiting_count_ -= static_cast<int64_t>(queue.size());
      for (const uint32_t id : std::exchange(queue, {})) place(id);
    }
  }

  void add_drawn(Episode& episode, const ReplicaModel::Reply& reply, int64_t kept) {
    if (kept == 0) return;
    episode.oldest = std::min(episode.oldest.value_or(reply.first_version), reply.first_version);
    episode.version_sum += reply.version_sum * static_cast<double>(kept) / static_cast<double>(reply.tokens);
    episode.tokens += kept;
    episode.left -= kept;
    episode.context += static_cast<double>(kept);
  }

  void reply_ends(const Event& event) {
    ended_.clear();
    fleet_.take_ended(now_, event, ended_);
    for (const ReplicaModel::Reply& reply : ended_) {
      Episode& episode = episodes_[reply.session];
      add_drawn(episode, reply, reply.tokens);
      if (++episode.turn < episode.turns) {
        episode.losses = 0;  // a turn is a session of its own
        episode.context += plan_.episodes.turn_tokens;
        episode.unread = plan_.episodes.turn_tokens;
        after(plan_.episodes.turn_seconds, EventKind::turn_begins, reply.session);
      } else {
        after(plan_.episodes.score_seconds, EventKind::scored, reply.session);
      }
    }
  }
  void after(double seconds, EventKind kind, uint32_t subject) { events_.push(now_ + seconds, kind, subject); }

  void replica_fails(const Event& event) {
    std::vector<ReplicaModel::Reply> interrupted;
    if (!fleet_.fail(now_, event, interrupted)) return;
    for (const ReplicaModel::Reply& reply : interrupted) {
      Episode& episode = episodes_[reply.session];
      const auto chunk = static_cast<int64_t>(actors::kChunk);
      add_drawn(episode, reply, reply.tokens / chunk * chunk);  // what it had sent
      episode.replica.reset();
      if (++episode.losses < actors::kMaxLosses) {
        place(reply.session);
      } else {
        deliver(reply.session, true);
      }
    }
  }

  // The learner.
  void deliver(uint32_t id, bool failed) {
    const Episode& episode = episodes_[id];
    collector_.add({.group = episode.prompt,
                    .sample = episode.number,
                    .sampler_group = static_cast<uint32_t>(episode.group.value()),
                    .oldest = episode.oldest.value_or(0),
                    .version_sum = episode.version_sum,
                    .tokens = failed ? 0 : episode.tokens,
                    .present = true});
    free_.push_back(id);
    try_take();
  }

  void try_take() {
    if (training_ || done_) return;
    const int64_t prompts = plan_.learner.prompts, size = plan_.learner.group_size;
    if (plan_.run.max_staleness) {
      const int64_t groups = static_cast<int64_t>(collector_.drop_stale(version_, *plan_.run.max_staleness).size());
      dropped_ += groups * size;
      result_.dropped += groups * size;
      credits_ += groups * size;
      if (actors::too_many_dropped(dropped_, prompts * size)) {
        result_.stopped = "more than half of the samples of an update were dropped as older than run.max_staleness";
        done_ = true;
        return;
      }
    }
    if (collector_.complete() >= prompts) take(prompts);
    issue();
  }

  void take(int64_t prompts) {
    for (const auto& group : collector_.take(prompts))
      for (const Sample& sample : group.samples) count(sample);
    credits_ += prompts * plan_.learner.group_size;
    dropped_ = 0;
    training_ = true;
    ++updates_;
    waited_ += now_ - free_since_;
    pace_.takes(now_);
    if (autoscaler_) pace_.drawn(fleet_.tokens(now_));
    after(plan_.learner.train_seconds, EventKind::trained, 0);
    if (updates_ == plan_.run.warmup_updates) begin_measuring();
    if (updates_ == plan_.run.warmup_updates + plan_.run.updates) done_ = true;
  }

  void trained() {
    ++version_;
    if (plan_.learner.publish_seconds > 0) {
      after(plan_.learner.publish_seconds, EventKind::weights_live, static_cast<uint32_t>(version_));
    } else {
      fleet_.swap(now_, version_);
    }
    if (plan_.learner.close_seconds > 0) {
      after(plan_.learner.close_seconds, EventKind::update_closed, 0);
    } else {
      update_closed();
    }
  }

  void update_closed() {
    training_ = false;
    free_since_ = now_;
    pace_.waits(now_);
    try_take();
  }

  void scale() {
    actors::FleetLoad load{.sessions = fleet_.sessions() + waiting_count_, .queued = fleet_.queued() + waiting_count_};
    pace_.fill(now_, fleet_.tokens(now_), load);
    fleet_.obey(now_, autoscaler_->decide(now_, fleet_.scaling_groups(), load));
    place_waiting();  // a group that was to come may have been stopped
    if (events_.empty()) return;
    after(plan_.autoscaler.every_seconds, EventKind::scale, 0);
  }

  // The result.
  void begin_measuring() {
    result_ = Result{.events = result_.events, .stopped = result_.stopped};
    result_.groups.resize(plan_.samplers.size());
    samples_by_group_.assign(plan_.samplers.size(), {});
    before_ = fleet_.use(now_);
    measured_from_ = now_;
    waited_before_ = waited_;
    measuring_ = true;
  }

  void count(const Sample& sample) {
    if (!measuring_) return;
    if (sample.tokens == 0) {
      ++result_.failed;
      return;
    }
    const auto age = static_cast<int64_t>(version_ - sample.oldest);
    ++result_.staleness[age];
    auto& [samples, staleness] = samples_by_group_[sample.sampler_group];
    ++samples;
    staleness += static_cast<double>(age);
    ++result_.samples;
    trained_tokens_ += static_cast<double>(sample.tokens);
    token_age_ += static_cast<double>(version_) * static_cast<double>(sample.tokens) - sample.version_sum;
  }

  void end_measuring();
  GroupResult group_result(size_t g, const GroupUse& now, const GroupUse& before) const;

  const FleetPlan& plan_;
  EventQueue events_;
  SamplerFleet fleet_;
  actors::Collector<Sample> collector_;
  std::vector<Episode> episodes_;
  std::vector<uint32_t> free_;
  std::vector<std::deque<uint32_t>> waiting_;  // episodes without a replica: of no group yet, then by group
  int64_t waiting_count_ = 0;
  std::vector<ReplicaModel::Reply> ended_;
  double now_ = 0.0;
  int64_t credits_ = 0;
  uint64_t next_prompt_ = 0;
  bool done_ = false;

  bool training_ = false;
  uint64_t version_ = 0;
  int64_t updates_ = 0, dropped_ = 0;
  double free_since_ = 0.0, waited_ = 0.0;
  actors::LearnerPace pace_;
  std::optional<actors::Autoscaler> autoscaler_;

  bool measuring_ = false;
  Result result_;
  std::vector<std::pair<int64_t, double>> samples_by_group_;  // and the sum of their staleness
  std::vector<GroupUse> before_;
  double measured_from_ = 0.0, waited_before_ = 0.0, trained_tokens_ = 0.0, token_age_ = 0.0;
};

GroupResult Simulation::group_result(size_t g, const GroupUse& now, const GroupUse& before) const {
  const GroupPlan& plan = plan_.samplers[g];
  const double hours = std::max(1e-12, result_.seconds / 3600.0);
  const double tokens = now.tokens - before.tokens, serving = now.serving_hours - before.serving_hours;
  const double capacity = now.capacity_tokens - before.capacity_tokens;
  const double cost = plan.price_per_hour * (now.paid_hours - before.paid_hours);
  const auto& [samples, staleness] = samples_by_group_[g];
  GroupResult group{.name = plan.name};
  group.share = result_.samples > 0 ? static_cast<double>(samples) / static_cast<double>(result_.samples) : 0.0;
  group.tokens_per_second = tokens / (hours * 3600.0);
  group.idle_share = serving > 0 ? std::clamp(1.0 - (now.busy_hours - before.busy_hours) / serving, 0.0, 1.0) : 0.0;
  group.unused_share = capacity > 0 ? std::clamp(1.0 - tokens / capacity, 0.0, 1.0) : 0.0;
  group.replicas = serving / hours;
  group.cost_per_hour = cost / hours;
  group.cost_per_million_tokens = tokens > 0 ? cost / tokens * 1e6 : 0.0;
  group.staleness = samples > 0 ? staleness / static_cast<double>(samples) : 0.0;
  group.starts = now.starts - before.starts;
  group.stops = now.stops - before.stops;
  group.failures = now.failures - before.failures;
  return group;
}

void Simulation::end_measuring() {
  if (!measuring_) begin_measuring();  // it stopped in its warm-up: there is nothing to show but why
  result_.updates = std::max<int64_t>(0, updates_ - plan_.run.warmup_updates);
  result_.seconds = now_ - measured_from_;
  const double seconds = std::max(1e-9, result_.seconds),
               updates = std::max<double>(1.0, static_cast<double>(result_.updates));
  const std::vector<GroupUse> use = fleet_.use(now_);
  for (size_t g = 0; g < use.size(); ++g) {
    result_.groups[g] = group_result(g, use[g], before_[g]);
    result_.tokens_per_second += result_.groups[g].tokens_per_second;
    result_.cost_per_hour += result_.groups[g].cost_per_hour;
  }
  result_.samples_per_second = static_cast<double>(result_.samples) / seconds;
  result_.update_seconds = result_.seconds / updates;
  result_.updates_per_hour = 3600.0 * static_cast<double>(result_.updates) / seconds;
  result_.hunger = std::clamp((waited_ - waited_before_) / seconds, 0.0, 1.0);
  const double cost = result_.cost_per_hour * result_.seconds / 3600.0, tokens = result_.tokens_per_second * seconds;
  result_.cost_per_update = cost / updates;
  result_.cost_per_million_tokens = tokens > 0 ? cost / tokens * 1e6 : 0.0;
  result_.token_staleness = trained_tokens_ > 0 ? token_age_ / trained_tokens_ : 0.0;
}

}  // namespace

Result simulate(const FleetPlan& plan) { return Simulation(plan).run(); }

FleetPlan homogeneous(const FleetPlan& plan, const std::string& name) {
  double capacity = 0.0;
  for (const GroupPlan& group : plan.samplers)
    capacity += group.tokens_per_second * static_cast<double>(group.replicas);
  const auto found = std::find_if(plan.samplers.begin(), plan.samplers.end(),
                                  [&](const GroupPlan& group) { return group.name == name; });
  if (found == plan.samplers.end()) throw std::out_of_range("there is no sampler group " + name);
  FleetPlan alone = plan;
  alone.autoscaler.enabled = false;
  alone.samplers = {*found};
  alone.samplers[0].capacity.reset();
  alone.samplers[0].replicas =
      plan.compare.replicas.value_or(std::max<int64_t>(1, std::llround(capacity / found->tokens_per_second)));
  return alone;
}

}  // namespace motley::simulation
