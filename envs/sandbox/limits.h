// What a sandbox may use, and the error of everything that goes wrong with sandboxes themselves.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace motley::envs {

/// The machine cannot make sandboxes, or one was lost: never the fault of what ran in it.
class SandboxError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A work tree that holds too much to be taken, or was made so that it cannot be: the fault of what ran in the sandbox.
class TreeError : public SandboxError {
 public:
  using SandboxError::SandboxError;
};

/// The time limit of the episode ended the sandbox.
class EpisodeOver : public SandboxError {
 public:
  using SandboxError::SandboxError;
};

inline constexpr double kMostSandboxSeconds = 1e6;  // of any limit on time

struct SandboxLimits {
  uint64_t memory_bytes = 512ULL << 20;  // of all processes and files of the sandbox together; from 32 MiB
  uint64_t disk_bytes = 128ULL << 20;   // of the work tree, and of /tmp once more; from 64 KiB, at most half the memory
  uint32_t processes = 64;              // threads included; from 8
  uint32_t open_files = 256;            // of one process; from 64
  uint64_t files = 20000;               // files and folders in the sandbox
  uint64_t output_bytes = 16384;        // of one call; the middle of longer output is cut
  double cpu_seconds = 600;             // of one process
  double call_seconds = 60;             // wall-clock time of one call
  double episode_seconds = 1800;        // wall-clock time from the start to the end of everything
  std::vector<std::string> readable{};  // further folders of this machine that can be read, at the same path
};

/// Throws SandboxError naming the first limit that is out of range.
void check_limits(const SandboxLimits& limits);

}  // namespace motley::envs
