// How an episode grows, token in, token out. Pure.
#pragma once

#include "algos/trajectory.h"
#include "envs/environment.h"
#include "kernels/philox.h"

namespace motley::actors {

/// Tokens that the model reads but did not draw: the prompt, and observations between turns.
inline void append_read(algos::Trajectory& episode, const std::vector<int32_t>& tokens) {
  episode.tokens.insert(episode.tokens.end(), tokens.begin(), tokens.end());
  episode.loss_mask.resize(episode.tokens.size(), 0);
}
/// Exactly the tokens that were drawn, with their records.
inline void append_drawn(algos::Trajectory& episode, TokenRecords records) {
  episode.tokens.insert(episode.tokens.end(), records.tokens.begin(), records.tokens.end());
  episode.loss_mask.resize(episode.tokens.size(), 1);
  if (episode.records.size() == 0) {
    episode.records = std::move(records);
  } else {
    episode.records.append(records);
  }
}
/// Whether the model has room for what a turn reads, and a token of the reply.
inline bool room_for_turn(size_t context, size_t read, int64_t max_positions) {
  return static_cast<int64_t>(context + read) < max_positions;
}
/// The session's part of the random key: what is asked, not when it arrives. It serves every turn, since the position
/// in the sequence is another part.
inline uint64_t random_session(const envs::TaskMix::Pick& pick, uint64_t sample) {
  return kernels::mix(kernels::mix(kernels::mix(pick.entry, pick.epoch), pick.index), sample);
}

}  // namespace motley::actors
