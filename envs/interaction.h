// Episodes in which something happens between replies: commands run in a sandbox, or a program elsewhere answers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "envs/environment.h"

namespace motley::envs {

/// What the model allows an episode, whatever the task's own limits are.
struct InteractionLimits {
  int64_t tokens = 0;        // of the whole episode, read and drawn: the model's positions
  int64_t reply_tokens = 0;  // of a reply
};

/// What an episode came to.
struct InteractionOutcome {
  Reward reward{};
  std::string end{};          // how it ended, a word of the task's: "submitted", "turn_limit"
  int64_t format_errors = 0;  // replies
  bool truncated = false;     // a limit ended it
  std::string failure{};      // not empty: the sandbox, the scorer or the program failed, and there is no reward
};

/// One episode. Its constructor and every method may block for as long as a command runs, so that who drives many gives
/// them threads; one thread at a time, threads may change. May be destroyed at any time: what it started ends.
class Interaction {
 public:
  virtual ~Interaction() = default;
  /// How many tokens the first reply to context() may have; nothing: the episode is over. Called once, first.
  virtual std::optional<int64_t> begin() = 0;
  /// The same after a reply, with its end token unless it was cut off. `prompt`: the ids that the sampler really read;
  /// std::logic_error unless they are context() exactly.
  virtual std::optional<int64_t> replied(std::span<const int32_t> prompt, std::span<const int32_t> reply) = 0;
  /// All tokens so far, and for each whether it was drawn (1) or read (0).
  virtual const std::vector<int32_t>& context() const = 0;
  virtual const std::vector<uint8_t>& drawn() const = 0;
  /// Scores the episode. Called once, when it is over. Throws nothing that a task, a program or a model can cause.
  virtual InteractionOutcome outcome() = 0;
};

/// A perfect episode, to be learned from: drawn tokens are the targets.
struct InteractionExample {
  std::vector<int32_t> tokens{};
  std::vector<uint8_t> drawn{};
};

}  // namespace motley::envs
