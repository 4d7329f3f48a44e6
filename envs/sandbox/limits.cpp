#include "envs/sandbox/limits.h"

#include <cmath>

namespace motley::envs {
namespace {

void check(bool right, const std::string& rule) {
  if (!right) throw SandboxError("sandbox limits: " + rule);
}

void check_seconds(double seconds, const std::string& name) {
  check(std::isfinite(seconds) && seconds >= 0.01 && seconds <= kMostSandboxSeconds,
        name + " must be between 0.01 and 1e6");
}

}  // namespace

void check_limits(const SandboxLimits& limits) {
  check(limits.memory_bytes >= 32ULL << 20, "memory_bytes must be at least 33554432 (32 MiB)");
  check(limits.disk_bytes >= 65536 && limits.disk_bytes <= limits.memory_bytes / 2,
        "disk_bytes must be at least 65536 and at most half of memory_bytes, since files live in memory");
  check(limits.processes >= 8 && limits.processes <= 4096, "processes must be between 8 and 4096");
  check(limits.open_files >= 64 && limits.open_files <= 65536, "open_files must be between 64 and 65536");
  check(limits.files >= 16, "files must be at least 16");
  check(limits.output_bytes >= 64 && limits.output_bytes <= 16ULL << 20,
        "output_bytes must be between 64 and 16777216 (16 MiB)");
  check_seconds(limits.cpu_seconds, "cpu_seconds");
  check_seconds(limits.call_seconds, "call_seconds");
  check_seconds(limits.episode_seconds, "episode_seconds");
  for (const std::string& folder : limits.readable)
    check(folder.size() > 1 && folder[0] == '/', "readable: '" + folder + "' is no absolute path of a folder");
}

}  // namespace motley::envs
