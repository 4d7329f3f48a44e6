// A scripted episode as a supervised example: the commands of a task's demonstration, really run, then the submission.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "envs/chat/agent_episode.h"

namespace motley::envs {

/// Runs a command within so many seconds; what it came to, and how long it took.
struct CommandResult {
  Observation observation{};
  double seconds = 0;
};
using CommandRunner = std::function<CommandResult(const std::string& command, double seconds)>;

struct Transcript {
  Tokens tokens{};
  std::vector<uint8_t> drawn{};  // 1: of a reply, to be learned; 0: read
  EpisodeEnd end = EpisodeEnd::failed;
};
/// What an agent that runs exactly these commands, each in a turn, and then submits reads and writes. An episode that a
/// limit ends early has another end than `submitted`: no example to learn from. Throws what `run` throws.
Transcript demonstrate(const ChatFormat& format, const AgentLimits& limits, std::string_view system,
                       std::string_view issue, const std::vector<std::string>& commands, const CommandRunner& run);

}  // namespace motley::envs
