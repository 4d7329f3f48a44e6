// How replicas of a sampler group are had and given back: other processes here, or whatever a tool of the user's starts
// elsewhere. What starts an instance joins the run by itself (motley sampler --join ... --instance NAME).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "actors/experiment.h"

namespace motley::actors {

/// What failed, with what the tool said.
class ProvisionError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Instance {
  std::string name;
  std::string ending;  // empty while it runs; else how it ended, of a provisioner that can tell
};

/// What the instances of one group are told.
struct ProvisionContext {
  std::string prefix;  // of their names: a number follows
  std::string group, profile, device;
  std::string join;     // HOST:PORT
  std::string key;      // path of the key file; empty: none
  std::string program;  // motley itself
};

/// Of one group. For one thread, which may block for the call limit: never a scheduler's.
class Provisioner {
 public:
  virtual ~Provisioner() = default;
  /// Returns when the instance is on its way, not when it serves. Throws ProvisionError; the instance may run
  /// nevertheless.
  virtual void start(const std::string& name) = 0;
  /// Returns when it has been told to end, with time to leave its sessions to others. Throws ProvisionError.
  virtual void stop(const std::string& name) = 0;
  /// The instances with the group's prefix, whoever started them. Each that has ended by itself is in one answer at
  /// most. Throws ProvisionError.
  virtual std::vector<Instance> list() = 0;
  /// Stops all that `names` holds at once, and gives the failures by then. Nothing more is started.
  virtual std::vector<std::string> stop_all(const std::vector<std::string>& names,
                                            std::chrono::steady_clock::time_point deadline) = 0;
  /// To be called a few times a second.
  virtual void tend() {}
};

/// "inproc", "process", "command". Of the first there is no Provisioner: the supervisor starts those.
const std::vector<std::string>& provisioner_names();
/// `cancelled` ends a call that blocks. Throws std::invalid_argument for "inproc" and unknown names.
std::unique_ptr<Provisioner> make_provisioner(const ProvisionOptions& options, const ProvisionContext& context,
                                              std::function<bool()> cancelled);

/// What the names of a group's instances begin with: RUN-GROUP-, in lower case letters, digits and '-', at most 50
/// characters, so that host names, jobs and pods may be called so. `run`: its folder's name.
std::string instance_prefix(std::string_view run, std::string_view group);
/// The number that follows the prefix; 0 unless `name` is the prefix and a number of 1 to 9 digits.
int64_t instance_number(std::string_view name, std::string_view prefix);

}  // namespace motley::actors
