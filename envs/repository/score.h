// The score of an episode on a repository task: its changes on a fresh copy of the tree, the hidden tests, the test
// command, all in a fresh sandbox. Nothing that the episode's sandbox says enters but the files in it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "envs/repository/task.h"
#include "envs/sandbox/sandbox.h"

namespace motley::envs {

struct Score {
  enum class Kind : uint8_t {
    passed,    // reward 1: the test command ended with status 0
    failed,    // reward 0: it did not, within its time
    rejected,  // reward 0: the changes were not even tried
    error,     // no reward: the sandbox or the task failed, whatever the changes were; counted apart, never a 0
  } kind = Kind::error;
  std::string reason;  // why it did not pass, in a line
  std::string patch;   // the changes as a diff; empty where they are none or no text
  std::string output;  // of the test command, its middle cut
  double seconds = 0;  // of the test command
  double reward() const { return kind == Kind::passed ? 1.0 : 0.0; }  // of an error: not to be used
};

/// Ends what runs in the episode's sandbox, takes its work tree and scores that. Throws nothing that the episode, the
/// task or the system can cause.
Score score_episode(SandboxHost& host, const RepositoryTask& task, Sandbox& episode);

/// The same for a work tree as it was taken, and for a diff of the visible tree (empty: the untouched tree).
Score score_tree(SandboxHost& host, const RepositoryTask& task, const FileTree& after);
Score score_patch(SandboxHost& host, const RepositoryTask& task, std::string_view patch);

/// What an episode's sandbox may use.
SandboxLimits sandbox_limits(const RepositoryLimits& limits);

}  // namespace motley::envs
