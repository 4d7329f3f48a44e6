// Responses to given prompts, drawn by an engine of the sampler's profile, and the scores of their tokens by a mixed
// pass: the data of every measurement of mismatch.
#pragma once

#include <functional>

#include "algos/mismatch/compare.h"
#include "algos/mismatch/mixed_pass.h"

namespace motley::algos::mismatch {

struct Drawing {
  int64_t responses = 512;   // prompts are taken in turn
  int64_t length = 32;       // tokens of a response at most
  double temperature = 1.0;  // above 0
  uint64_t seed = 0;
  std::vector<int32_t> stop_tokens;  // none: every response has its full length
  int64_t vocabulary = 0;            // ids below it may be drawn; 0: all
  Device device;                     // that the engine computes on
};

/// Flat over all drawn tokens, response after response.
struct Responses {
  std::vector<std::vector<int32_t>> sequences;  // prompt and response
  std::vector<int64_t> prompt_tokens;           // of each sequence
  std::vector<int64_t> offsets{0};              // [responses + 1] into the drawn tokens
  std::vector<int32_t> ids;                     // the drawn tokens
  std::vector<float> log_q;                     // as the engine recorded them
  int64_t vocabulary = 0;                       // ids below it could be drawn
  double temperature = 1.0;

  int64_t count() const { return static_cast<int64_t>(sequences.size()); }
  int64_t tokens() const { return static_cast<int64_t>(ids.size()); }
};

/// Draws over the whole vocabulary. A token depends on the seed, its response's number and its position, never on the
/// batch. Throws std::invalid_argument for prompts that cannot be decoded (empty, too long, ids outside the
/// vocabulary) or none at all, and std::runtime_error when decoding fails (logits that are no distribution).
Responses draw_responses(std::shared_ptr<const SamplerWeights> weights,
                         const std::vector<std::vector<int32_t>>& prompts, const Drawing& drawing);

/// The head's input for every drawn token, in order.
HeadInput score_responses(MixedWeights& weights, const Assignment& assignment, const RopeTable& table,
                          const Responses& responses);

}  // namespace motley::algos::mismatch
