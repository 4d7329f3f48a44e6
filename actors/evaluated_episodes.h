// Plays the episodes of an evaluation: replies are drawn by one engine while threads wait for what tasks do.
#pragma once

#include "actors/evaluation.h"
#include "envs/interaction.h"

namespace motley::actors {

/// How an episode of an evaluation ended.
struct EvaluatedEpisode {
  envs::InteractionOutcome outcome{};
  int64_t replies = 0, tokens = 0;  // tokens: read and drawn
};

/// Every sample of every problem: that of sample s of problem p is entry p * request.samples + s. The draws, and with
/// them the episodes, depend on the seed and on (problem, sample) alone, whatever slots and threads there are. Empty
/// when stop() was true meanwhile.
std::vector<EvaluatedEpisode> play_episodes(std::shared_ptr<const SamplerWeights> weights, const envs::TaskMix& tasks,
                                            const std::vector<envs::TaskMix::Pick>& problems,
                                            const envs::Tokenizer& tokenizer, const EvaluationRequest& request,
                                            int64_t slots, const std::function<bool()>& stop);

}  // namespace motley::actors
