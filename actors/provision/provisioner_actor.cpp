#include "actors/provision/provisioner_actor.h"

#include "actors/system.h"

namespace motley::actors {
namespace {

constexpr std::chrono::milliseconds kTend{250};
constexpr std::chrono::seconds kStopLimit{40};  // below kShutdownLimit

}  // namespace

caf::behavior ProvisionerActor::start(const FleetPtr& fleet, uint64_t group, const ProvisionContext& context,
                                      caf::actor notes) {
  group_ = group;
  prefix_ = context.prefix;
  notes_ = std::move(notes);
  provisioner_ = make_provisioner(fleet->experiment.samplers.at(group).provision, context,
                                  [fleet] { return fleet->stopping.load(); });
  self_->set_exit_handler([this](const caf::exit_msg& message) {
    stop_all();
    self_->quit(message.reason);
  });
  self_->send(self_, TendTick{});
  return {
      [this](const StartInstance& order) { return start_one(order.number); },
      [this](const StopInstance& order) { return stop_one(order.number); },
      [this](ListInstances) { return list(); },
      [this](TendTick) {
        provisioner_->tend();
        self_->delayed_send(self_, kTend, TendTick{});
      },
  };
}

InstanceStarted ProvisionerActor::start_one(uint64_t number) {
  running_.insert(number);  // whatever its tool says: what failed may run nevertheless
  try {
    provisioner_->start(instance_name(number));
    return {group_, number, ""};
  } catch (const ProvisionError& error) {
    return {group_, number, error.what()};
  }
}

InstanceStopped ProvisionerActor::stop_one(uint64_t number) {
  try {
    provisioner_->stop(instance_name(number));
    running_.erase(number);
    return {group_, number, ""};
  } catch (const ProvisionError& error) {
    return {group_, number, error.what()};
  }
}

InstanceList ProvisionerActor::list() {
  InstanceList answer{.group = group_};
  try {
    for (const Instance& each : provisioner_->list()) {
      const auto number = static_cast<uint64_t>(instance_number(each.name, prefix_));
      if (number == 0) continue;
      answer.numbers.push_back(number);
      answer.endings.push_back(each.ending);
      if (each.ending.empty())
        running_.insert(number);
      else
        running_.erase(number);
    }
  } catch (const ProvisionError& error) {
    answer.failure = error.what();
  }
  return answer;
}

void ProvisionerActor::stop_all() {
  std::vector<std::string> names;
  for (const uint64_t number : running_) names.push_back(instance_name(number));
  for (const std::string& failure : provisioner_->stop_all(names, std::chrono::steady_clock::now() + kStopLimit))
    self_->send(notes_, Note{"autoscaler: this may still run and cost: " + failure});
}

caf::behavior provisioner_actor(caf::stateful_actor<ProvisionerActor>* self, const FleetPtr& fleet, uint64_t group,
                                const ProvisionContext& context, caf::actor notes) {
  install_handlers(self);
  return self->state.start(fleet, group, context, std::move(notes));
}

}  // namespace motley::actors
