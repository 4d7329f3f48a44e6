#include "actors/provision/process_provisioner.h"

#include <signal.h>

#include <thread>

namespace motley::actors {
namespace {

constexpr std::chrono::seconds kGrace{5};  // for an instance to leave its sessions to others
constexpr std::chrono::milliseconds kExitLook{20};

}  // namespace

std::vector<std::string> sampler_command(const ProvisionContext& context) {
  std::vector<std::string> command{context.program, "sampler",     "--join",   context.join,
                                   "--group",       context.group, "--device", context.device};
  if (!context.key.empty()) command.insert(command.end(), {"--key", context.key});
  return command;
}

void ProcessProvisioner::start(const std::string& name) {
  std::vector<std::string> words = command_;
  words.insert(words.end(), {"--instance", name});
  try {
    running_[name] = {
        std::make_unique<envs::ChildProcess>(envs::ChildOptions{.words = std::move(words), .bound_to_thread = true}),
        std::nullopt};
  } catch (const envs::ChildError& error) {
    running_.erase(name);
    throw ProvisionError("the process of instance " + name + " " + error.what());
  }
}

void ProcessProvisioner::stop(const std::string& name) {
  const auto found = running_.find(name);
  if (found == running_.end() || found->second.kill_at) return;
  found->second.process->signal(SIGTERM);
  found->second.kill_at = Clock::now() + kGrace;
}

void ProcessProvisioner::tend() {
  const auto now = Clock::now();
  for (auto at = running_.begin(); at != running_.end();) {
    Running& each = at->second;
    const bool runs = each.process->running();
    if (runs && !(each.kill_at && now >= *each.kill_at)) {
      ++at;
      continue;
    }
    each.process->end();
    if (!each.kill_at) ended_.push_back({at->first, "its process " + each.process->ending()});
    at = running_.erase(at);
  }
}

std::vector<Instance> ProcessProvisioner::list() {
  tend();
  std::vector<Instance> all = std::exchange(ended_, {});
  for (const auto& [name, each] : running_) all.push_back({name, ""});
  return all;
}

std::vector<std::string> ProcessProvisioner::stop_all(const std::vector<std::string>& names,
                                                      std::chrono::steady_clock::time_point deadline) {
  for (const std::string& name : names) stop(name);
  for (auto& [name, each] : running_)
    if (each.kill_at) each.kill_at = std::min(*each.kill_at, deadline);
  const auto going = [this] {
    for (const auto& [name, each] : running_)
      if (each.kill_at) return true;
    return false;
  };
  while (going()) {
    tend();
    std::this_thread::sleep_for(kExitLook);
  }
  return {};
}

}  // namespace motley::actors
