// Where cgroups for sandboxes can be made, and what is written into them. Version 1 and 2.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "envs/sandbox/limits.h"

namespace motley::envs {

/// What the keeper makes and writes for one sandbox.
struct CgroupOrder {
  std::vector<std::string> folders;   // two levels below a place: RUN/ID
  std::vector<std::string> settings;  // path, value, path, value, ...
};

/// One folder for all sandboxes of a host below the cgroup that motley itself is in (version 2: below the nearest one
/// that hands memory and pids on), named after the process so that what a dead run left is recognized.
class Cgroups {
 public:
  /// Nothing where no folder can be made, or where the kernel has no memory or no pids controller there.
  static std::optional<Cgroups> find();
  CgroupOrder order(uint64_t id, const SandboxLimits& limits) const;
  /// How many processes of the sandbox the kernel has killed for want of memory.
  uint64_t memory_kills(uint64_t id) const;
  int version() const { return version_; }
  /// The folders that the run's own is made in.
  std::vector<std::string> places() const { return {memory_, pids_}; }

 private:
  Cgroups(int version, std::string memory, std::string pids);
  std::string folder(const std::string& place, uint64_t id) const;
  int version_;
  std::string memory_, pids_;  // places: existing folders
  std::string run_;            // name of the host's folder
};

/// Kills what dead runs left in their cgroups below the place and removes these. Returns how many there were.
int remove_stale_cgroups(const std::string& place);

}  // namespace motley::envs
