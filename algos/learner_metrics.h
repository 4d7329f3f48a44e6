// The learner's metrics (docs/metrics.md): per-token scores of a batch, gathered in any order of micro-batches and
// added up in the order of the batch, so that no metric depends on the split.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "algos/learner.h"
#include "algos/sample_selection.h"
#include "algos/trajectory.h"

namespace motley::algos {

/// What the trainer found at each loss token of one sample, before it trained on the sample.
struct SampleScores {
  std::vector<double> log_ratio;  // log p - log q of the drawn token: exactly 0 for equal log-probabilities
  std::vector<double> entropy;
  std::vector<uint8_t> masked;
};
struct BatchScores {
  explicit BatchScores(size_t samples) : samples(samples) {}
  std::vector<SampleScores> samples;                   // [batch]; empty where a sample is not kept
  std::map<std::string, std::vector<double>> further;  // Coefficients::samples of all micro-batches
};

/// Statistics of ratios r = p / q. True extremes: nothing is bounded but what a double cannot hold.
struct RatioStatistics {
  double kl = 0, k3 = 0, outside = 0, max = 0, ess = 0;
};
/// `log_ratios` must not be empty.
RatioStatistics ratio_statistics(std::span<const double> log_ratios);

/// Everything but what the optimizer's step adds.
Metrics batch_metrics(std::span<const Trajectory> batch, const SampleSelection& selection, const BatchScores& scores);

}  // namespace motley::algos
