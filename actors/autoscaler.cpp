#include "actors/autoscaler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "actors/provision/provisioner_actor.h"
#include "actors/remote/hub.h"
#include "actors/system.h"

namespace motley::actors {

caf::behavior AutoscalerActor::start(FleetPtr fleet, caf::actor supervisor, caf::actor router) {
  fleet_ = std::move(fleet);
  supervisor_ = std::move(supervisor);
  router_ = std::move(router);
  policy_.emplace(fleet_->experiment.autoscaler.resolved());
  self_->set_exit_handler([this](const caf::exit_msg& message) {
    if (std::none_of(groups_.begin(), groups_.end(), [&](const Group& group) {
          return group.provisioner && group.provisioner.address() == message.source;
        }))
      close();
  });
  self_->set_down_handler([this](const caf::down_msg& message) {
    const auto found = std::find_if(groups_.begin(), groups_.end(), [&](const Group& group) {
      return group.provisioner && group.provisioner.address() == message.source;
    });
    if (found == groups_.end()) return;
    if (!closing_) throw std::runtime_error("a provisioner: " + cause_text(self_->system(), message.reason));
    found->provisioner = nullptr;
    close();
  });
  uint64_t first = 0;
  for (size_t g = 0; g < fleet_->experiment.samplers.size(); ++g) {
    add_group(g, first);
    first += static_cast<uint64_t>(options(g).replicas);
  }
  self_->send(self_, ScaleTick{});
  return {
      [this](ScaleTick) { tick(); },
      [this](LearnerWaits) { pace_.waits(now()); },
      [this](LearnerTakes) {
        pace_.takes(now());
        self_->request(router_, kRequestLimit, FleetQuery{}).then([this](const FleetSeen& seen) {
          pace_.drawn(static_cast<double>(seen.tokens));
        });
      },
      [this](const InstanceStarted& answer) { started(answer); },
      [this](const InstanceStopped& answer) { stopped(answer); },
      [this](const InstanceList& list) { listed(list); },
  };
}

void AutoscalerActor::add_group(size_t g, uint64_t first_replica) {
  const SamplerGroupOptions& group = options(g);
  InstanceLedger::Limits limits;
  limits.join_seconds = group.provision.join_seconds;
  limits.backoff = fleet_->experiment.autoscaler.every_seconds;
  Group& made = groups_.emplace_back(Group{.ledger = InstanceLedger(limits)});
  made.prefix = instance_prefix(fleet_->folder.filename().string(), group.name);
  if (group.provision.provisioner == "inproc") {
    for (int64_t i = 0; i < group.replicas; ++i) {
      made.ledger.adopt(i + 1, now());
      made.local[i + 1] = first_replica + static_cast<uint64_t>(i);
    }
    return;
  }
  made.known = false;
  made.provisioner =
      self_->spawn<caf::detached>(provisioner_actor, fleet_, static_cast<uint64_t>(g), context(g), supervisor_);
  self_->link_to(made.provisioner);
  self_->monitor(made.provisioner);
}

ProvisionContext AutoscalerActor::context(size_t g) const {
  const SamplerGroupOptions& group = options(g);
  const bool here = group.provision.provisioner == "process";
  return {.prefix = groups_[g].prefix,
          .group = group.name,
          .profile = group.profile,
          .device = group.device,
          .join = here ? fleet_->join_here : fleet_->join_elsewhere,
          .key = fleet_->hub->listen().key_file,
          .program = std::filesystem::read_symlink("/proc/self/exe").string()};
}

void AutoscalerActor::tick() {
  if (fleet_->stopping) return;  // and whatever fails from now on fails because of that
  for (Group& group : groups_)
    if (group.provisioner && !std::exchange(group.listing, true)) self_->send(group.provisioner, ListInstances{});
  look();
  const std::chrono::duration<double> every(fleet_->experiment.autoscaler.every_seconds);
  self_->delayed_send(self_, std::chrono::duration_cast<std::chrono::milliseconds>(every), ScaleTick{});
}

void AutoscalerActor::look() {
  if (fleet_->stopping || std::exchange(looking_, true)) return;
  self_->request(router_, kRequestLimit, FleetQuery{}).then([this](const FleetSeen& seen) {
    looking_ = false;
    if (fleet_->stopping) return;
    see(seen);
    act(seen);
    settle();
  });
}

void AutoscalerActor::see(const FleetSeen& seen) {
  std::vector<double> sum(groups_.size(), 0.0), measured(groups_.size(), 0.0);
  for (Group& group : groups_) {
    group.serving.clear();
    group.foreign = 0;
  }
  serving_ = 0;
  for (size_t i = 0; i < seen.replicas.size(); ++i) {
    const auto g = static_cast<size_t>(seen.groups[i]);
    Group& group = groups_.at(g);
    if (seen.tokens_per_second[i] > 0) {
      sum[g] += static_cast<double>(seen.tokens_per_second[i]);
      measured[g] += 1.0;
    }
    int64_t number = instance_number(seen.instances[i], group.prefix);
    for (const auto& [local, replica] : group.local)
      if (replica == seen.replicas[i]) number = local;
    if (number > 0) group.ledger.adopt(number, now());
    if (seen.serving[i] == 0) continue;  // it is being measured
    ++serving_;
    if (number > 0)
      group.serving[number] = seen.replicas[i];
    else
      ++group.foreign;
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (measured[g] > 0)
      groups_[g].capacity = sum[g] / measured[g];
    else if (groups_[g].capacity == 0.0 && seen.busy_ns.at(g) > 0)
      groups_[g].capacity = 1e9 * static_cast<double>(seen.group_tokens.at(g)) / static_cast<double>(seen.busy_ns[g]);
    groups_[g].ledger.see(now(), groups_[g].serving);
  }
}

double AutoscalerActor::expected_capacity(size_t g) const {
  if (groups_[g].capacity > 0) return groups_[g].capacity;
  if (options(g).tokens_per_second) return *options(g).tokens_per_second;
  double sum = 0.0, count = 0.0;  // nothing is known of this group: as the others
  for (size_t other = 0; other < groups_.size(); ++other) {
    const double known =
        groups_[other].capacity > 0 ? groups_[other].capacity : options(other).tokens_per_second.value_or(0.0);
    if (known <= 0) continue;
    sum += known;
    count += 1.0;
  }
  return count > 0 ? sum / count : 1.0;
}

/// One for each group, and behind them one for the replicas of each that are not the autoscaler's own: they serve, but
/// it neither pays nor stops them.
std::vector<ScalingGroup> AutoscalerActor::scaling_groups(double now) const {
  std::vector<ScalingGroup> all;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const Group& group = groups_[g];
    const InstanceLedger::Counts counts = group.ledger.counts();
    all.push_back({.minimum = options(g).minimum.value_or(options(g).replicas),
                   .maximum = options(g).maximum.value_or(options(g).replicas),
                   .price_per_hour = options(g).price_per_hour,
                   .start_seconds = options(g).start_seconds,
                   .capacity = expected_capacity(g),
                   .slots = options(g).max_sequences,
                   .serving = counts.serving,
                   .starting = counts.starting,
                   .leaving = counts.leaving,
                   .available = group.known && group.ledger.available(now)});
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    ScalingGroup foreign = all[g];
    foreign.minimum = foreign.maximum = foreign.serving = groups_[g].foreign;
    foreign.starting = foreign.leaving = 0;
    foreign.price_per_hour = 0.0;
    all.push_back(foreign);
  }
  return all;
}

void AutoscalerActor::act(const FleetSeen& seen) {
  const double at = now();
  FleetLoad load;
  std::map<uint64_t, int64_t> sessions;
  load.queued = static_cast<int64_t>(seen.queued);
  load.sessions = load.queued;
  for (size_t i = 0; i < seen.replicas.size(); ++i) {
    const auto running = static_cast<int64_t>(seen.sessions[i]);
    sessions[seen.replicas[i]] = running;
    load.sessions += running;
    load.queued += std::max<int64_t>(0, running - options(seen.groups[i]).max_sequences);
  }
  pace_.fill(at, static_cast<double>(seen.tokens), load);
  const std::vector<ScalingGroup> groups = scaling_groups(at);
  const ScalingDecision change = policy_->decide(at, groups, load);
  double capacity = 0.0;
  for (const ScalingGroup& group : groups) capacity += group.capacity * static_cast<double>(group.serving);
  for (size_t g = 0; g < groups_.size(); ++g)
    if (change[g] != 0) obey(g, change[g], reason_text(load, capacity), sessions);
}

std::string AutoscalerActor::reason_text(const FleetLoad& load, double capacity) const {
  const auto percent = [](double share) { return std::lround(100.0 * std::clamp(share, 0.0, 1.0)); };
  switch (policy_->reason()) {
    case Autoscaler::Reason::bounds:
      return "its minimum, its maximum or the budget asks for it";
    case Autoscaler::Reason::nothing_serves:
      return "no replica serves";
    case Autoscaler::Reason::too_small:
      return fmt::format("the learner waits for {} % of its time, and {} episodes are queued", percent(load.hunger),
                         load.queued);
    case Autoscaler::Reason::too_large:
      return fmt::format("{} % of the capacity is idle", percent(1.0 - load.used / capacity));
  }
  return "";
}

void AutoscalerActor::obey(size_t g, int64_t change, const std::string& reason,
                           const std::map<uint64_t, int64_t>& sessions) {
  Group& group = groups_[g];
  const InstanceLedger::Counts counts = group.ledger.counts();
  int64_t done = 0;
  for (; done < change; ++done) start_one(g);
  for (; done > change; --done) {
    const auto victim = group.ledger.victim(sessions);
    if (!victim) break;
    if (!group.ledger.retire(*victim, now())) continue;
    const auto replica = group.ledger.replica(*victim);
    if (replica) self_->send(supervisor_, RetireReplica{*replica});
  }
  if (done == 0) return;
  self_->send(supervisor_,
              Note{fmt::format("autoscaler: {} {} of group {}, which has {}: {}", done > 0 ? "starts" : "stops",
                               std::abs(done), options(g).name, counts.serving + counts.starting, reason)});
}

void AutoscalerActor::start_one(size_t g) {
  Group& group = groups_[g];
  const int64_t number = group.ledger.order(now());
  if (group.provisioner) {
    self_->send(group.provisioner, StartInstance{static_cast<uint64_t>(number)});
    return;
  }
  self_->request(supervisor_, kRequestLimit, AddReplica{g})
      .then(
          [this, g, number](uint64_t replica) {
            groups_[g].local[number] = replica;
            if (groups_[g].ledger.started(number, now())) settle();
          },
          [this, g, number](const caf::error& error) {
            say(g, number, groups_[g].ledger.failed(number, now(), cause_text(self_->system(), error)));
          });
}

void AutoscalerActor::stop_one(size_t g, int64_t number) {
  Group& group = groups_[g];
  if (group.provisioner) {
    self_->send(group.provisioner, StopInstance{static_cast<uint64_t>(number)});
    return;
  }
  if (const auto local = group.local.extract(number); !local.empty())
    self_->send(supervisor_, RetireReplica{local.mapped()});  // a second time is none
  group.ledger.stopped(number, "");
}

void AutoscalerActor::settle() {
  if (fleet_->stopping) return;
  for (size_t g = 0; g < groups_.size(); ++g)
    for (const InstanceLedger::Due& due : groups_[g].ledger.due(now())) {
      say(g, due.number, due.text);
      stop_one(g, due.number);
    }
  std::string cause;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const InstanceLedger::Counts counts = groups_[g].ledger.counts();
    const bool never = groups_[g].ledger.given_up() || options(g).maximum.value_or(options(g).replicas) == 0;
    if (!never || counts.starting > 0 || serving_ > 0) return;
    if (cause.empty() && groups_[g].ledger.given_up())
      cause = "group " + options(g).name + ": " + groups_[g].ledger.first_cause();
  }
  if (!cause.empty()) throw std::runtime_error("no replica serves, and none can be started: " + cause);
}

void AutoscalerActor::started(const InstanceStarted& answer) {
  const auto number = static_cast<int64_t>(answer.number);
  Group& group = groups_.at(answer.group);
  if (!answer.failure.empty()) {
    say(answer.group, number, group.ledger.failed(number, now(), answer.failure));
    self_->send(group.provisioner, StopInstance{answer.number});  // should it run nevertheless
  } else {
    group.ledger.started(number, now());
  }
  settle();
}

void AutoscalerActor::stopped(const InstanceStopped& answer) {
  const auto number = static_cast<int64_t>(answer.number);
  say(answer.group, number, groups_.at(answer.group).ledger.stopped(number, answer.failure));
}

void AutoscalerActor::listed(const InstanceList& list) {
  Group& group = groups_.at(list.group);
  group.listing = false;
  if (!list.failure.empty()) {
    if (!group.known) {
      if (group.ledger.available(now()))
        say(list.group, 0, "its instances cannot be listed: " + group.ledger.failed(now(), list.failure));
    } else if (!std::exchange(group.deaf, true)) {
      say(list.group, 0, "its instances cannot be listed, and are taken to run: " + list.failure);
    }
    settle();
    return;
  }
  group.deaf = false;
  std::vector<int64_t> running;
  int64_t found = 0;
  for (size_t i = 0; i < list.numbers.size(); ++i) {
    const auto number = static_cast<int64_t>(list.numbers[i]);
    if (!list.endings.at(i).empty()) {
      say(list.group, number, group.ledger.failed(number, now(), list.endings[i]));
      continue;
    }
    running.push_back(number);
    if (group.known || group.ledger.knows(number)) continue;
    group.ledger.adopt(number, now());
    ++found;
  }
  if (found > 0)
    say(list.group, 0,
        fmt::format("{} instances of an earlier process still run; those that do not join within {} s are stopped",
                    found, std::lround(options(list.group).provision.join_seconds)));
  for (const int64_t number : group.ledger.missing(now(), running))
    say(list.group, number, group.ledger.failed(number, now(), "it is gone"));
  if (!std::exchange(group.known, true)) look();
  settle();
}

/// Ends when the provisioners have stopped what they started.
void AutoscalerActor::close() {
  const bool first = !std::exchange(closing_, true);
  bool alone = true;
  for (const Group& group : groups_) {
    if (!group.provisioner) continue;
    alone = false;
    if (first) self_->send_exit(group.provisioner, caf::exit_reason::user_shutdown);
  }
  if (alone) self_->quit(caf::exit_reason::user_shutdown);
}

void AutoscalerActor::say(size_t g, int64_t number, const std::string& text) {
  if (text.empty() || fleet_->stopping) return;
  const std::string which = number > 0 ? groups_[g].prefix + std::to_string(number) : "group " + options(g).name;
  self_->send(supervisor_, Note{"autoscaler: " + which + ": " + text});
}

caf::behavior autoscaler(caf::stateful_actor<AutoscalerActor>* self, FleetPtr fleet, caf::actor supervisor,
                         caf::actor router) {
  install_handlers(self);
  return self->state.start(std::move(fleet), std::move(supervisor), std::move(router));
}

}  // namespace motley::actors
