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

}  // namespace

RepositorySession::RepositorySession(SandboxHost& host, const RepositoryTask& task)
    : host_(host), task_(task), sandbox_(host, sandbox_limits(task.limits)) {
  sandbox_.put(visible_tree(task).entries());
}

CommandResult RepositorySession::run(const std::string& command, double seconds) {
  const double most = std::clamp(seconds, 0.01, sandbox_.limits().call_seconds);
  try {
    const CallResult result = sandbox_.call(command, most);
    return {{result.output, result.status, result.timed_out},
            result.timed_out ? std::max(result.seconds, most) : result.seconds};
  } catch (const EpisodeOver&) {
    return {{"", 137, true}, seconds};
  }
}

Score RepositorySession::score() { return score_episode(host_, task_, sandbox_); }

AgentLimits agent_limits(const RepositoryLimits& task, AgentLimits model) {
  model.turns = std::min(model.turns, task.turns);
  model.seconds = std::min(model.seconds, static_cast<double>(task.episode_seconds));
  return model;
}

AgentOutcome run_episode(SandboxHost& host, const RepositoryTask& task, const ChatFormat& format,
                         const AgentLimits& limits, std::string_view system, const ReplySampler& sample) {
  AgentEpisode episode(format, agent_limits(task.limits, limits), system, task.issue);
  Score score;
  try {
    RepositorySession session(host, task);
    AgentEpisode::Next next = episode.begin();
    while (!episode.end()) {
      if (const auto* command = std::get_if<AgentEpisode::Run>(&next)) {
        const CommandResult result = session.run(command->command, command->seconds);
        next = episode.observed(result.observation, result.seconds);
      } else {
        const Tokens prompt = episode.context();
        next = episode.replied(prompt, sample(prompt, std::get<AgentEpisode::Ask>(next).most_tokens));
      }
    }
    score = session.score();
  } catch (const SandboxError& error) {
    if (!episode.end()) episode.fail();
    score.kind = Score::Kind::error;
    score.reason = error.what();
  }
  return {episode.context(), episode.drawn(), episode.turns(), episode.format_errors(), *episode.end(), score};
}

Transcript demonstrate_task(SandboxHost& host, const RepositoryTask& task, const ChatFormat& format,
                            const AgentLimits& limits, std::string_view system) {
  if (task.demonstration.empty()) throw TaskError(task.place + ": there is no demonstration");
  RepositorySession session(host, task);
  Transcript transcript =
      demonstrate(format, agent_limits(task.limits, limits), system, task.issue, task.demonstration,
                  [&](const std::string& command, double seconds) { return session.run(command, seconds); });
  if (transcript.end != EpisodeEnd::submitted)
    throw TaskError(task.place + ": the demonstration ends by " + std::string(name_of(transcript.end)));
  const Score score = session.score();
  if (score.kind != Score::Kind::passed)
    throw TaskError(task.place + ": the demonstration does not pass: " + score.reason + tail(score.output));
  return transcript;
}

}  // namespace motley::envs
