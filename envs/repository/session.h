// A repository task in its own sandbox, as the episode of an agent needs it: commands, then a score. Every method
// blocks; who drives episodes without blocking gives each a thread.
#pragma once

#include <functional>

#include "envs/chat/demonstration.h"
#include "envs/repository/score.h"

namespace motley::envs {

class RepositorySession {
 public:
  /// Starts the sandbox and puts the visible tree into it. Host and task must outlive the session. Throws TaskError for
  /// a tree that cannot be read, SandboxError.
  RepositorySession(SandboxHost& host, const RepositoryTask& task);
  /// Runs a command in the session's shell for at most `seconds`, and at most the task's call_seconds. An episode whose
  /// time is over gives a result that timed out. Throws SandboxError when the sandbox is lost: nobody's fault.
  CommandResult run(const std::string& command, double seconds);
  /// Ends what runs, and scores the tree as it stands.
  Score score();

 private:
  SandboxHost& host_;
  const RepositoryTask& task_;
  Sandbox sandbox_;
};

/// The limits of an agent's episode on a task: the task's own turns and time, with those of the model.
AgentLimits agent_limits(const RepositoryLimits& task, AgentLimits model);

/// Samples a reply of at most `most` tokens to `prompt`, with its end token unless it was cut off.
using ReplySampler = std::function<Tokens(const Tokens& prompt, int64_t most)>;

struct AgentOutcome {
  Tokens tokens{};
  std::vector<uint8_t> drawn{};
  std::vector<uint32_t> turns{};  // drawn tokens of each
  int64_t format_errors = 0;
  EpisodeEnd end = EpisodeEnd::failed;
  Score score{};  // of an episode that failed: an error
};
/// A whole episode on this thread, scored in a fresh sandbox. A sandbox that is lost makes an outcome that failed.
/// Throws what `sample` throws.
AgentOutcome run_episode(SandboxHost& host, const RepositoryTask& task, const ChatFormat& format,
                         const AgentLimits& limits, std::string_view system, const ReplySampler& sample);

/// The scripted demonstration of a task, run in its sandbox. Throws TaskError for a task without one and for one that
/// does not end by submitting what passes; SandboxError.
Transcript demonstrate_task(SandboxHost& host, const RepositoryTask& task, const ChatFormat& format,
                            const AgentLimits& limits, std::string_view system);

}  // namespace motley::envs
