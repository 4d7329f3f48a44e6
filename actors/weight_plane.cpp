#include "actors/weight_plane.h"

#include <algorithm>

#include "actors/policy/staleness.h"
#include "actors/system.h"

namespace motley::actors {

caf::behavior WeightPlane::start(FleetPtr fleet) {
  fleet_ = std::move(fleet);
  return {
      [this](const Publish& publish, const ParametersPtr& parameters) {
        learner_ = caf::actor_cast<caf::actor>(self_->current_sender());
        snapshots_[publish.version] = parameters;
        if (publish.live && !fleet_->lock_step()) published_[publish.version] = std::chrono::steady_clock::now();
        // Behind every snapshot that is waiting already: when this is late only the newest is quantized.
        if (publish.live && !std::exchange(quantizing_, true)) self_->send(self_, QuantizeTick{});
      },
      [this](QuantizeTick) {
        quantizing_ = false;
        roll_out();
      },
      [this](const Subscribe& subscribe) {
        Replica& replica = replicas_[subscribe.replica];
        replica = Replica{kind_of(subscribe.group, subscribe.remote), subscribe.group,
                          caf::actor_cast<caf::actor>(self_->current_sender()), std::nullopt, std::nullopt};
        if (!target_.empty()) send_weights(replica);
      },
      [this](const WeightsLive& live) {
        const auto found = replicas_.find(live.replica);
        if (found == replicas_.end()) return;
        found->second.live = found->second.had = live.version;
        confirm();
        measure();
      },
      [this](const ReplicaLost& lost) {
        replicas_.erase(lost.replica);
        measure();
      },
  };
}

void WeightPlane::roll_out() {
  const auto& groups = fleet_->experiment.samplers;
  const uint64_t newest = snapshots_.rbegin()->first;
  target_.assign(groups.size(), newest);
  uint64_t keep = 0;  // versions behind the newest that may still be asked for
  for (size_t g = 0; fleet_->lock_step() && g < groups.size(); ++g) {
    if (!groups[g].staleness) continue;
    target_[g] = imposed_version(fleet_->experiment.seed, newest + 1, g, *groups[g].staleness, newest);
    keep = std::max(keep, static_cast<uint64_t>(groups[g].staleness->second));
  }
  while (snapshots_.begin()->first + keep < newest) snapshots_.erase(snapshots_.begin());
  std::erase_if(quantized_, [&](const auto& entry) { return !snapshots_.contains(entry.first.second); });
  if (fleet_->lock_step()) unconfirmed_ = newest;
  for (auto& [id, replica] : replicas_) send_weights(replica);
  confirm();
}

size_t WeightPlane::kind_of(size_t group, bool remote) {
  const SamplerGroupOptions& options = fleet_->experiment.samplers.at(group);
  const Kind kind{fleet_->experiment.group_profile(options), remote ? Device{} : kernels::parse_device(options.device)};
  const auto found = std::find(kinds_.begin(), kinds_.end(), kind);
  if (found == kinds_.end()) kinds_.push_back(kind);
  return static_cast<size_t>(std::find(kinds_.begin(), kinds_.end(), kind) - kinds_.begin());
}

WeightsPtr WeightPlane::weights(size_t number, uint64_t version) {
  WeightsPtr& entry = quantized_[{number, version}];
  if (!entry) {
    {
      const kernels::ComputeLease lease(compute_);
      const Kind& kind = kinds_[number];
      entry =
          std::make_shared<SamplerWeights>(fleet_->model, *snapshots_.at(version), kind.profile, version, kind.device);
    }
    compute_.rest();
  }
  return entry;
}

void WeightPlane::send_weights(Replica& replica) {
  const uint64_t version = target_[replica.group];
  if (replica.live == version) return;
  replica.live.reset();
  const WeightsPtr next = weights(replica.kind, version);
  self_->send<caf::message_priority::high>(replica.handle, SwapWeights{version, next->digest()}, next);
}

void WeightPlane::confirm() {
  if (!unconfirmed_ || replicas_.size() < fleet_->replicas()) return;
  for (const auto& [id, replica] : replicas_)
    if (replica.live != target_[replica.group]) return;
  self_->send(learner_, Published{*std::exchange(unconfirmed_, std::nullopt)});
}

void WeightPlane::measure() {
  std::optional<uint64_t> oldest;
  for (const auto& [id, replica] : replicas_)
    if (replica.had) oldest = std::min(oldest.value_or(*replica.had), *replica.had);
  if (!oldest || published_.empty() || published_.begin()->first > *oldest) return;
  const auto reached = std::prev(published_.upper_bound(*oldest));
  const auto took = std::chrono::steady_clock::now() - reached->second;
  self_->send(learner_, RolledOut{reached->first, static_cast<uint64_t>(std::chrono::nanoseconds(took).count())});
  published_.erase(published_.begin(), std::next(reached));
}

caf::behavior weight_plane(caf::stateful_actor<WeightPlane>* self, FleetPtr fleet) {
  install_handlers(self);
  return self->state.start(std::move(fleet));
}

}  // namespace motley::actors
