#include "envs/chat/demonstration.h"

namespace motley::envs {

Transcript demonstrate(const ChatFormat& format, const AgentLimits& limits, std::string_view system,
                       std::string_view issue, const std::vector<std::string>& commands, const CommandRunner& run) {
  AgentEpisode episode(format, limits, system, issue);
  AgentEpisode::Next next = episode.begin();
  for (size_t turn = 0; !episode.end(); ++turn) {
    if (const auto* command = std::get_if<AgentEpisode::Run>(&next)) {
      const CommandResult result = run(command->command, command->seconds);
      next = episode.observed(result.observation, result.seconds);
      if (episode.end()) break;
    }
    const ToolCall call = turn < commands.size() ? ToolCall{ToolCall::Tool::bash, commands[turn]} : ToolCall{};
    const Tokens reply = format.call(call);
    if (static_cast<int64_t>(reply.size()) > std::get<AgentEpisode::Ask>(next).most_tokens)
      return {episode.context(), episode.drawn(), EpisodeEnd::token_limit};
    next = episode.replied(Tokens(episode.context()), reply);
  }
  return {episode.context(), episode.drawn(), *episode.end()};
}

}  // namespace motley::envs
