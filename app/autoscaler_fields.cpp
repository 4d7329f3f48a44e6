#include "app/autoscaler_fields.h"

#include <algorithm>

#include "actors/provision/command_template.h"
#include "actors/provision/provisioner.h"

namespace motley::app {
namespace {

using E = Experiment;
using Words = std::vector<std::string> ProvisionOptions::*;

bool commands(const SamplerGroupOptions& group) { return group.provision.provisioner == "command"; }
bool elsewhere(const SamplerGroupOptions& group) { return group.provision.provisioner != "inproc"; }

/// Has no value, and is not printed, where it has no effect.
Field only_if(Field field, std::function<bool(const SamplerGroupOptions&)> applies) {
  field.get = [get = field.get, applies](E& e, size_t i) -> std::optional<Value> {
    return e.autoscaler.enabled && applies(e.samplers.at(i)) ? get(e, i) : std::nullopt;
  };
  return field;
}

Field command(const char* name, Words words, const char* help) {
  return only_if(
      field(
          "samplers", name, [words](E & e, size_t i) -> auto& { return e.samplers.at(i).provision.*words; }, help)
          .repeated()
          .defaults_to("none"),
      commands);
}

const std::vector<std::pair<const char*, Words>> kCommands{
    {"start", &ProvisionOptions::start}, {"stop", &ProvisionOptions::stop}, {"list", &ProvisionOptions::list}};

void check_command(const std::string& key, const std::vector<std::string>& words, const KeyPositions& keys) {
  const bool names_one = !key.ends_with("list");
  std::vector<std::string> allowed = actors::placeholder_names();
  if (!names_one) std::erase(allowed, "instance");
  std::vector<std::string> found;
  for (const std::string& word : words)
    for (std::string& name : actors::placeholders_of(word)) found.push_back(std::move(name));
  for (const std::string& name : found) {
    if (std::find(allowed.begin(), allowed.end(), name) != allowed.end()) continue;
    throw InputError(keys.of(key), fmt::format("{} has a place {{{}}}", key, name),
                     "allowed: {" + join(allowed, "}, {") + "}", nearest_name(name, allowed));
  }
  if (names_one && std::find(found.begin(), found.end(), "instance") == found.end())
    throw InputError(keys.of(key), key + " does not say which instance",
                     "one of its words must hold {instance}, the name of the one that it is about");
}

void check_provisioner(const SamplerGroupOptions& group, const std::string& path, const KeyPositions& keys) {
  for (const auto& [name, words] : kCommands) {
    const std::string key = path + name;
    const bool given = !(group.provision.*words).empty();
    if (given && !commands(group))
      throw InputError(keys.of(key), fmt::format("{} with provisioner = \"{}\"", key, group.provision.provisioner),
                       "commands are for provisioner = \"command\"");
    if (!given && commands(group))
      throw InputError(keys.of(path + "provisioner"), fmt::format("provisioner = \"command\" without {}", key),
                       "start, stop and list are needed: lists of words, as start = [\"ssh\", \"host\", ...]");
    if (given) check_command(key, group.provision.*words, keys);
  }
  if (!elsewhere(group)) return;
  if (group.replicas != 0)
    throw InputError(
        keys.of(path + "replicas"),
        fmt::format("{}replicas = {} with provisioner = \"{}\"", path, group.replicas, group.provision.provisioner),
        "replicas are engines in the run's own process: 0, and samplers.minimum for those at the start");
  if (group.maximum.value_or(0) == 0)
    throw InputError(keys.of(path + "provisioner"),
                     fmt::format("group '{}' is provisioned, and may have no replica", group.name),
                     "samplers.maximum of at least 1 is needed");
}

}  // namespace

std::vector<Field> experiment_autoscaler_fields() {
  std::vector<Field> all;
  const auto always = [](const SamplerGroupOptions&) { return true; };
  for (Field& each : group_bound_fields<E>()) all.push_back(only_if(std::move(each), always));
  all.push_back(only_if(
      field(
          "samplers", "tokens_per_second", [](E & e, size_t i) -> auto& { return e.samplers.at(i).tokens_per_second; },
          "of a replica, all slots full: what the autoscaler expects until it is measured")
          .above(0, 1e9)
          .defaults_to("as the other groups"),
      always));
  all.push_back(only_if(
      field(
          "samplers", "provisioner", [](E & e, size_t i) -> auto& { return e.samplers.at(i).provision.provisioner; },
          "how the autoscaler has replicas: engines in the run's process, other processes here, or commands")
          .one_of([] { return actors::provisioner_names(); }),
      always));
  all.push_back(command("start", &ProvisionOptions::start, "words of the command that starts {instance}"));
  all.push_back(command("stop", &ProvisionOptions::stop, "words of the command that stops {instance}"));
  all.push_back(
      command("list", &ProvisionOptions::list, "words of the command that prints the names of what runs, one a line"));
  all.push_back(only_if(
      field(
          "samplers", "call_seconds", [](E & e, size_t i) -> auto& { return e.samplers.at(i).provision.call_seconds; },
          "that each of these commands may take")
          .between(1, 3600),
      commands));
  all.push_back(only_if(
      field(
          "samplers", "join_seconds", [](E & e, size_t i) -> auto& { return e.samplers.at(i).provision.join_seconds; },
          "from the start of a replica until it serves; one that takes longer is stopped")
          .between(1, 1e6),
      always));
  for (Field& each : autoscaler_fields<E>()) all.push_back(std::move(each));
  all.push_back(field(
                    "autoscaler", "host", [](E & e, size_t) -> auto& { return e.autoscaler.host; },
                    "name or address by which instances elsewhere reach the run, for {join}")
                    .defaults_to("that of --listen; this machine's name where it listens everywhere"));
  return all;
}

void resolve_autoscaler(Experiment& e, const KeyPositions& keys) {
  for (size_t i = 0; i < e.samplers.size(); ++i)
    if (elsewhere(e.samplers[i]) && !keys.given(fmt::format("samplers.{}.replicas", i))) e.samplers[i].replicas = 0;
}

void check_autoscaler(const Experiment& e, const KeyPositions& keys) {
  check_autoscaling(e.autoscaler, e.samplers, keys);
  if (!e.autoscaler.enabled) {
    for (size_t i = 0; i < e.samplers.size(); ++i)
      for (const char* key : {"start_seconds", "tokens_per_second", "provisioner", "start", "stop", "list",
                              "call_seconds", "join_seconds"}) {
        const std::string path = fmt::format("samplers.{}.{}", i, key);
        if (keys.given(path))
          throw InputError(keys.of(path), fmt::format("{} without an autoscaler", path),
                           "it has no effect without a section [autoscaler]");
      }
    return;
  }
  if (!e.run.async)
    throw InputError(keys.of("autoscaler"), "an autoscaler in lock-step",
                     "there every update waits for the same replicas: set run.async = true, or leave it out");
  double cheapest = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < e.samplers.size(); ++i) {
    const SamplerGroupOptions& group = e.samplers[i];
    check_provisioner(group, fmt::format("samplers.{}.", i), keys);
    if (group.maximum.value_or(group.replicas) > 0) cheapest = std::min(cheapest, group.price_per_hour);
  }
  if (cheapest > e.autoscaler.resolved().budget_per_hour)
    throw InputError(keys.of(e.autoscaler.budget_per_hour ? "autoscaler.budget_per_hour" : "autoscaler"),
                     "no group may have a replica", "its maximum, and the budget, must allow at least one");
}

}  // namespace motley::app
