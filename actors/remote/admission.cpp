#include "actors/remote/admission.h"

#include <algorithm>

#include "actors/remote/learner_seat.h"
#include "actors/remote/wire.h"
#include "actors/version.h"
#include "tensor/config_json.h"

namespace motley::actors {
namespace {

constexpr size_t kMostPeerName = 128;  // of a peer, in messages

std::string sampler_refusal(const Fleet& fleet, const Hello& hello) {
  const std::string model = config_to_json(fleet.model);
  if (!hello.model.empty() && hello.model != model) return "its model is " + hello.model + ", this run's is " + model;
  if (group_of(fleet, hello)) return {};
  std::string names;
  for (const SamplerGroupOptions& group : fleet.experiment.samplers) names += (names.empty() ? "" : ", ") + group.name;
  if (!hello.group.empty()) return "there is no sampler group " + printable(hello.group) + ": this run has " + names;
  return "no group's profile stands for " + (hello.hardware.empty() ? "a CPU" : printable(hello.hardware)) +
         ": name one with --group: " + names;
}

std::string learner_refusal(const Fleet& fleet) {
  if (!fleet.seat) return "this run computes its own steps: with run.learner = \"joins\" it waits for a learner";
  if (fleet.seat->taken()) return "this run has a learner";
  return {};
}

}  // namespace

std::optional<size_t> group_of(const Fleet& fleet, const Hello& hello) {
  const auto& groups = fleet.experiment.samplers;
  if (hello.group.empty() && groups.size() == 1) return 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    const bool fits = hello.group.empty() ? !hello.hardware.empty() &&
                                                fleet.experiment.group_profile(groups[g]).hardware == hello.hardware
                                          : groups[g].name == hello.group;
    if (fits) return g;
  }
  return std::nullopt;
}

std::string admission_refusal(const Fleet& fleet, const Hello& hello) {
  if (hello.protocol != kFleetProtocol)
    return "it speaks protocol " + std::to_string(hello.protocol) + ", this run protocol " +
           std::to_string(kFleetProtocol) + ": build both of one source";
  if (hello.version != version())
    return "it is motley " + printable(hello.version) + ", this run is motley " + version() +
           ": build both of one source";
  if (hello.role == "sampler") return sampler_refusal(fleet, hello);
  if (hello.role == "worker" || hello.role == "evaluator") return {};
  if (hello.role == "learner") return learner_refusal(fleet);
  return "there is no role of that name: a sampler, a worker, a learner or an evaluator may join";
}

std::string printable(std::string text) {
  text.resize(std::min(text.size(), kMostPeerName));
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return text.empty() ? "unnamed" : text;
}

}  // namespace motley::actors
