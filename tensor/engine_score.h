// Scoring of given sequences with an engine's weights, in a cache of its own (Engine::score).
#pragma once

#include <vector>

#include "tensor/engine_context.h"

namespace motley {

/// Gives bit for bit the log-probabilities that decoding the same tokens over the whole vocabulary would have recorded.
std::vector<std::vector<float>> score_sequences(const SamplerWeights& weights, const RopeTable& table,
                                                const EngineLimits& limits,
                                                const std::vector<std::vector<int32_t>>& sequences, double temperature);

}  // namespace motley
