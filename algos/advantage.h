// Advantages of the samples of one group, in float64. Pure functions; formulas in docs/corrections.md.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace motley::algos {

/// "grpo": (R - mean) / (std + 1e-6), population-unbiased std (n - 1), group of equal rewards gives 0 (arXiv
/// 2402.03300); "dr_grpo": R - mean (arXiv 2503.20783); "rloo": R - mean of the others (arXiv 2402.14740). All need
/// groups of at least two.
std::vector<double> advantages(std::string_view name, std::span<const double> rewards);
const std::vector<std::string>& advantage_names();

/// How token losses are added up: the factor on every token of every sample of a batch.
/// "token_mean": 1 / loss tokens of the batch; "prompt_mean": token mean inside a prompt's samples, equal mean over
/// prompts; "sequence_mean": token mean inside a sample, mean over samples; "constant": sum / (samples x max_tokens).
/// tokens[i]: loss tokens of sample i; groups[i]: its prompt group. Result: factor per sample (each token of it).
std::vector<double> reduction_factors(std::string_view name, std::span<const int64_t> tokens,
                                      std::span<const uint64_t> groups, int64_t max_tokens);
const std::vector<std::string>& reduction_names();

}  // namespace motley::algos
