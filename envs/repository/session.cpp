#include "envs/repository/session.h"

#include <algorithm>

namespace motley::envs {

namespace {

/// The last lines of a test's output, for a message.
std::string tail(const std::string& output) {
  constexpr size_t kShown = 300;
  std::string text = output.size() > kShown ? "..." + output.substr(output.size() - kShown) : output;
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  return text.empty() ? "" : ": " + text;
}

/// The episode's time is that of its commands, which AgentEpisode counts: how long a sampler takes is not the model's
/// doing. So the sandbox itself has all the time that there is.
SandboxLimits session_limits(const RepositoryLimits& task) {
  SandboxLimits limits = sandbox_limits(task);
  limits.episode_seconds = kMostSandboxSeconds;
  return limits;
}

}  // namespace

RepositorySession::RepositorySession(SandboxHost& host, const RepositoryTask& task)
    : host_(host), task_(task), sandbox_(host, session_limits(task.limits)) {
  sandbox_.put(visible_tree(task).entries());
}

CommandResult RepositorySession::run(const std::string& command, double seconds) {
  const double most = std::clamp(seconds, 0.01, sandbox_.limits().call_seconds);
  const CallResult result = sandbox_.call(command, most);
  return {{result.output, result.status, result.timed_out},
          result.timed_out ? std::max(result.seconds, most) : result.seconds};
}

Score RepositorySession::score() { return score_episode(host_, task_, sandbox_); }

AgentLimits agent_limits(const RepositoryLimits& task, AgentLimits model) {
  model.turns = std::min(model.turns, task.turns);
  model.seconds = std::min(model.seconds, static_cast<double>(task.episode_seconds));
  return model;
}

RepositoryEpisode::RepositoryEpisode(SandboxHost& host, const RepositoryTask& task, const ChatFormat& format,
                                     const AgentLimits& limits, std::string_view system)
    : host_(host), task_(task), episode_(format, agent_limits(task.limits, limits), system, task.issue) {}

AgentEpisode::Next RepositoryEpisode::run(const AgentEpisode::Run& command) {
  CommandResult result;
  try {
    if (!session_) session_.emplace(host_, task_);
    result = session_->run(command.command, command.seconds);
  } catch (const SandboxError& error) {
    failure_ = error.what();
  } catch (const TaskError& error) {
    failure_ = error.what();
  }
  return failure_.empty() ? episode_.observed(result.observation, result.seconds) : episode_.fail();
}

std::optional<int64_t> RepositoryEpisode::follow(AgentEpisode::Next next) {
  while (const auto* command = std::get_if<AgentEpisode::Run>(&next)) next = run(*command);
  if (const auto* ask = std::get_if<AgentEpisode::Ask>(&next)) return ask->most_tokens;
  return std::nullopt;
}

std::optional<int64_t> RepositoryEpisode::begin() { return follow(episode_.begin()); }

std::optional<int64_t> RepositoryEpisode::replied(std::span<const int32_t> prompt, std::span<const int32_t> reply) {
  return follow(episode_.replied(prompt, reply));
}

Score RepositoryEpisode::score() {
  if (!episode_.end()) throw std::logic_error("an episode was scored before its end");
  if (failure_.empty()) return session_ ? session_->score() : score_patch(host_, task_, "");
  Score score;
  score.reason = failure_;
  return score;
}

Transcript demonstrate_task(SandboxHost& host, const RepositoryTask& task, const ChatFormat& format,
                            const AgentLimits& limits, std::string_view system, bool hasty) {
  std::vector<std::string> commands = task.demonstration;
  if (commands.empty()) throw TaskError(task.place + ": there is no demonstration");
  if (hasty) commands.pop_back();
  RepositorySession session(host, task);
  Transcript transcript =
      demonstrate(format, agent_limits(task.limits, limits), system, task.issue, commands,
                  [&](const std::string& command, double seconds) { return session.run(command, seconds); });
  if (transcript.end != EpisodeEnd::submitted)
    throw TaskError(task.place + ": the demonstration ends by " + std::string(name_of(transcript.end)));
  if (hasty) return transcript;
  const Score score = session.score();
  if (score.kind != Score::Kind::passed)
    throw TaskError(task.place + ": the demonstration does not pass: " + score.reason + tail(score.output));
  return transcript;
}

}  // namespace motley::envs
