// Provisioner "command": an instance is whatever a tool of the user's starts: ssh, sbatch, kubectl, a cloud's own.
#pragma once

#include <map>

#include "actors/provision/provisioner.h"

namespace motley::actors {

/// Each command must end by itself within the call limit; until then an instance is only on its way.
class CommandProvisioner final : public Provisioner {
 public:
  CommandProvisioner(const ProvisionOptions& options, const ProvisionContext& context, std::function<bool()> cancelled);
  void start(const std::string& name) override;
  void stop(const std::string& name) override;
  /// The first word of every line of the command's output, what stands before its last '/' left out (`pod/NAME`).
  std::vector<Instance> list() override;
  std::vector<std::string> stop_all(const std::vector<std::string>& names,
                                    std::chrono::steady_clock::time_point deadline) override;

 private:
  std::vector<std::string> words(const std::vector<std::string>& command, const std::string& name) const;
  /// Its output. Throws ProvisionError unless it ends with exit status 0 in time.
  std::string run(const char* what, const std::vector<std::string>& words);

  ProvisionOptions options_;
  std::string prefix_;
  std::map<std::string, std::string> values_;  // by placeholder
  std::function<bool()> cancelled_;
};

}  // namespace motley::actors
