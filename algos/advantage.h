// Advantages of the samples of one group, and how token losses are added up, in float64. Pure functions; formulas in
// docs/corrections.md.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace motley::algos {

/// "grpo": (R - mean) / (std + 1e-6), population-unbiased std (n - 1), group of equal rewards gives 0 (arXiv
/// 2402.03300); "dr_grpo": R - mean (arXiv 2503.20783); "rloo": R - mean of the others (arXiv 2402.14740); "maxrl":
/// (R - mean) / mean, 0 where the mean is (arXiv 2602.02710), for rewards of at least 0. These compare the samples of a
/// group and need at least two. "reinforce": R - baseline, for groups of any size.
std::vector<double> advantages(std::string_view name, std::span<const double> rewards, double baseline = 0.0);
const std::vector<std::string>& advantage_names();
/// False for "reinforce" alone.
bool compares_group(std::string_view advantage);
/// "episode": the samples of a group are compared by their rewards; "turn": their k-th turns, by what was earned from
/// there on (a return). Only "dr_grpo", "grpo" and "rloo" compare returns: the mean of "maxrl" stands for a success
/// rate, and the baseline of "reinforce" for the rewards of whole episodes.
const std::vector<std::string>& advantage_level_names();
bool compares_returns(std::string_view advantage);

/// The baseline of "reinforce": an exponential moving average of the batches' mean rewards. A batch is compared with
/// those before it, so that the baseline does not depend on the batch; the first one, with its own mean.
class MovingBaseline {
 public:
  /// `decay` in [0, 1): weight of the past.
  explicit MovingBaseline(double decay);
  /// What a batch of this mean reward is compared with.
  double value(double batch_mean) const { return average_.value_or(batch_mean); }
  void add(double batch_mean);
  /// Hexadecimal text, empty before the first batch; restore throws std::invalid_argument for any other text.
  std::string state() const;
  void restore(const std::string& state);

 private:
  double decay_;
  std::optional<double> average_;
};

/// How token losses are added up: the factor on every token of every sample of a batch.
/// "token_mean": 1 / loss tokens of the batch; "prompt_mean": token mean inside a prompt's samples, equal mean over
/// prompts; "sequence_mean": token mean inside a sample, mean over samples; "constant": sum / (samples x max_tokens).
/// tokens[i]: loss tokens of sample i; counted[i]: those of them that the denominators count (all, or those that are
/// not masked; "constant" counts samples); groups[i]: its prompt group. Result: factor per sample (each token of it), 0
/// where its denominator is 0.
std::vector<double> reduction_factors(std::string_view name, std::span<const int64_t> tokens,
                                      std::span<const int64_t> counted, std::span<const uint64_t> groups,
                                      int64_t max_tokens);
const std::vector<std::string>& reduction_names();
/// "kept": masked tokens count in the denominators; "renormalized": they do not.
const std::vector<std::string>& denominator_names();

}  // namespace motley::algos
