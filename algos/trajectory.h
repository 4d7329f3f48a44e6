// A finished episode, as it flows from the actors to the learner and into the trajectory files.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tensor/token_record.h"

namespace motley::algos {

/// What is sampled between two observations.
struct Turn {
  uint32_t tokens = 0;  // sampled; there may be none
  double reward = 0.0;  // its part of the episode's
};

/// `tokens` is the whole episode: prompt, sampled tokens, observations. Position i with loss_mask[i] = 1 was sampled;
/// the k-th such position is described by entry k of `records`.
struct Trajectory {
  std::string task;
  uint64_t group = 0;   // samples of one prompt share it; unique within a run
  uint64_t prompt = 0;  // the prompt's index in its task and epoch
  uint32_t sample = 0;  // 0 .. group_size - 1
  uint32_t attempt = 0;
  std::string sampler;  // name of the sampler group
  std::vector<int32_t> tokens;
  std::vector<uint8_t> loss_mask;
  TokenRecords records;
  double temperature = 1.0;
  double reward = 0.0;
  std::map<std::string, double> reward_parts;
  std::vector<Turn> turns;  // in order; their tokens and rewards add up to the episode's. Empty: one turn
  bool format_error = false;
  bool truncated = false;      // ended by a limit
  std::string ending;          // of an interaction: how it ended, a word of the task's, or "failed"; else empty
  int64_t format_errors = 0;   // of an interaction: replies without a valid call
  std::string failure;         // not empty: the episode failed and has no reward; counted, never trained on
  uint64_t batch_version = 0;  // the learner's version when it took the sample (0 until then)

  uint64_t oldest_version() const;  // of its tokens; 0 if none
  Turn as_one_turn() const { return {static_cast<uint32_t>(records.size()), reward}; }
  std::vector<Turn> all_turns() const { return turns.empty() ? std::vector<Turn>{as_one_turn()} : turns; }
  /// Empty if every array agrees with every other; else what is wrong.
  std::string inconsistency(int64_t vocabulary) const;
};

}  // namespace motley::algos
