// A repository task in its own sandbox, as the episode of an agent needs it: commands, then a score. Every method
// blocks; who drives episodes without blocking gives each a thread.
#pragma once

#include <optional>
#include <span>

#include "envs/chat/demonstration.h"
#include "envs/repository/score.h"

namespace motley::envs {

class RepositorySession {
 public:
  /// Starts the sandbox and puts the visible tree into it. Host and task must outlive the session. Throws TaskError for
  /// a tree that cannot be read, SandboxError.
  RepositorySession(SandboxHost& host, const RepositoryTask& task);
  /// Runs a command in the session's shell for at most `seconds`, and at most the task's call_seconds. Throws
  /// SandboxError when the sandbox is lost: nobody's fault.
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

/// A whole episode but for the sampling: replies in, commands run, a score. Its sandbox starts with its first command.
class RepositoryEpisode {
 public:
  /// Host, task and format must outlive it. `limits`: the model's; the task's own hold as well.
  RepositoryEpisode(SandboxHost& host, const RepositoryTask& task, const ChatFormat& format, const AgentLimits& limits,
                    std::string_view system);
  /// How many tokens the first reply to episode().context() may have; nothing: the episode is over. Once, first.
  std::optional<int64_t> begin();
  /// The same after a reply (AgentEpisode::replied), whose command has run. A sandbox that is lost, or a tree that
  /// cannot be read, makes an episode that failed.
  std::optional<int64_t> replied(std::span<const int32_t> prompt, std::span<const int32_t> reply);
  const AgentEpisode& episode() const { return episode_; }
  /// Once it is over: in a fresh sandbox. Of an episode that failed: an error.
  Score score();

 private:
  std::optional<int64_t> follow(AgentEpisode::Next next);
  AgentEpisode::Next run(const AgentEpisode::Run& command);

  SandboxHost& host_;
  const RepositoryTask& task_;
  AgentEpisode episode_;
  std::optional<RepositorySession> session_;
  std::string failure_;
};

/// The scripted demonstration of a task, run in its sandbox. Throws TaskError for a task without one and for one that
/// does not end by submitting what passes; SandboxError. `hasty`: without its last command, and nobody scores it.
Transcript demonstrate_task(SandboxHost& host, const RepositoryTask& task, const ChatFormat& format,
                            const AgentLimits& limits, std::string_view system, bool hasty = false);

}  // namespace motley::envs
