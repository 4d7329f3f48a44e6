// Provisioner "process": an instance is a child process on this machine. The kernel kills it when the thread that uses
// the provisioner ends, and so with the run, kill -9 included.
#pragma once

#include <map>

#include "actors/provision/provisioner.h"
#include "envs/child_process.h"

namespace motley::actors {

/// motley sampler --join HOST:PORT --group NAME --device DEVICE [--key FILE]
std::vector<std::string> sampler_command(const ProvisionContext& context);

class ProcessProvisioner final : public Provisioner {
 public:
  /// `command` gets --instance NAME at its end.
  ProcessProvisioner(std::vector<std::string> command, const ProvisionContext& context)
      : command_(std::move(command)), prefix_(context.prefix) {}

  void start(const std::string& name) override;
  /// SIGTERM, and SIGKILL when that had no effect for five seconds.
  void stop(const std::string& name) override;
  std::vector<Instance> list() override;
  std::vector<std::string> stop_all(const std::vector<std::string>& names,
                                    std::chrono::steady_clock::time_point deadline) override;
  void tend() override;

 private:
  using Clock = std::chrono::steady_clock;
  struct Running {
    std::unique_ptr<envs::ChildProcess> process;
    std::optional<Clock::time_point> kill_at;  // it has been told to end
  };

  std::vector<std::string> command_;
  std::string prefix_;
  std::map<std::string, Running> running_;
  std::vector<Instance> ended_;  // by themselves, not yet listed
};

}  // namespace motley::actors
