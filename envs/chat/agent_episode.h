// An episode of an agent, as a state machine without threads: given what was sampled, what happens next. Whoever drives
// it (an actor, an evaluation, a test) samples replies and runs commands.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "envs/chat/format.h"

namespace motley::envs {

/// How an episode ended. The tree is scored as it stands then, unless the episode failed.
enum class EpisodeEnd : uint8_t {
  submitted,      // the model called submit
  turn_limit,     // its last turn is used up
  token_limit,    // the episode's tokens, or the model's positions, are used up
  format_errors,  // too many replies in a row without a valid call
  time_limit,     // the commands' time is used up
  failed,         // the sampler or the sandbox did: nobody's reward
};
/// "submitted", "turn_limit", ...: as in metrics.
std::string_view name_of(EpisodeEnd end);

struct AgentLimits {
  int64_t turns = 32;                // replies
  int64_t tokens = 4096;             // of the whole episode, read and drawn; at most the model's positions
  int64_t reply_tokens = 512;        // of a reply
  int64_t observation_tokens = 512;  // that a command's result takes in the context, with what stands around it
  int64_t format_errors = 3;         // in a row
  double seconds = 600;              // of all commands together
};

class AgentEpisode {
 public:
  /// Run this command and tell `observed`.
  struct Run {
    std::string command;
    double seconds = 0;  // left to the episode
  };
  /// Sample a reply of at most `most_tokens` to context(), and tell `replied`.
  struct Ask {
    int64_t most_tokens = 0;
  };
  struct Ended {
    EpisodeEnd reason = EpisodeEnd::failed;
  };
  using Next = std::variant<Ask, Run, Ended>;

  /// The format must outlive the episode.
  AgentEpisode(const ChatFormat& format, const AgentLimits& limits, std::string_view system, std::string_view issue);

  /// The first thing to do.
  Next begin();
  /// A reply to `prompt`, the ids that the sampler really read: they must be context() exactly, so that no text can
  /// have been decoded and encoded again on the way (std::logic_error otherwise). Only after Ask.
  Next replied(std::span<const int32_t> prompt, std::span<const int32_t> reply);
  /// What the command came to, and how long it took. Only after Run.
  Next observed(const Observation& observation, double seconds);
  /// The sampler or the sandbox failed.
  Next fail();

  /// All tokens so far, read and drawn, and for each whether it was drawn (1) or read (0: no loss, no KL).
  const Tokens& context() const { return context_; }
  const std::vector<uint8_t>& drawn() const { return drawn_; }
  /// Drawn tokens of each turn.
  const std::vector<uint32_t>& turns() const { return turns_; }
  int64_t format_errors() const { return format_errors_; }
  std::optional<EpisodeEnd> end() const { return end_; }

 private:
  enum class Waiting : uint8_t { nothing, reply, result };
  Next ask();
  Next finish(EpisodeEnd reason);
  void read(const Tokens& tokens);
  int64_t room() const;
  void expect(Waiting state) const;

  const ChatFormat* format_;
  AgentLimits limits_;
  Tokens context_;
  std::vector<uint8_t> drawn_;
  std::vector<uint32_t> turns_;
  int64_t format_errors_ = 0, errors_in_a_row_ = 0;
  double seconds_ = 0;
  bool last_ended_ = true;  // the last reply, with its end token
  Waiting waiting_ = Waiting::nothing;
  std::optional<EpisodeEnd> end_;
};

}  // namespace motley::envs
