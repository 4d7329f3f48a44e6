// Drives one interaction (envs/interaction.h) and holds its task to the rules: whatever a task throws or gives back
// that makes no sense fails its own episode only. Free of CAF: used by the run and by evaluation.
#pragma once

#include "envs/interaction.h"

namespace motley::actors {

/// What a call into a task came to: another reply is wanted, or the episode is over.
struct EpisodeStep {
  std::optional<int64_t> reply_tokens{};  // of the reply, at most, that is wanted; at least 1
  std::vector<int32_t> read{};            // before it and after what was drawn last
  envs::InteractionOutcome outcome{};     // when none is wanted; finite, or it says how it failed
};

/// Whether an ending may be called so: it has to fit into the name of a metric.
bool is_ending(const std::string& text);

/// All methods but drop() block as long as the task does; none throws. One thread at a time; threads may change.
class InteractionDriver {
 public:
  /// Blocks not at all. Tasks and tokenizer must outlive it.
  InteractionDriver(const envs::TaskMix& tasks, std::shared_ptr<const envs::TaskMix::Pick> pick,
                    const envs::Tokenizer& tokenizer, const envs::InteractionLimits& limits);
  EpisodeStep begin();
  /// `prompt`: what the sampler really read; `reply`: what it drew after that, with the end token unless it was cut
  /// off.
  EpisodeStep replied(std::span<const int32_t> prompt, std::span<const int32_t> reply);
  /// The episode ends here: what it started ends. May block, as the destructor does if the episode is not over.
  void drop() { interaction_.reset(); }

 private:
  template <class Call>
  EpisodeStep step(const Call& call);
  EpisodeStep go_on(int64_t wanted);
  EpisodeStep score();
  EpisodeStep fail(const std::string& why);

  const envs::TaskMix& tasks_;
  std::shared_ptr<const envs::TaskMix::Pick> pick_;
  const envs::Tokenizer& tokenizer_;
  envs::InteractionLimits limits_;
  std::unique_ptr<envs::Interaction> interaction_;
  std::vector<int32_t> known_;  // of the context: what the sampler read and drew
  std::vector<uint8_t> drawn_;
  size_t replies_ = 0;
};

}  // namespace motley::actors
