// The learner's metrics (docs/metrics.md): per-token scores of a batch, gathered in any order of micro-batches, and
// what they come to in all, by sampler group, by number format and by staleness. No metric depends on the split.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "algos/diagnostics.h"
#include "algos/learner.h"
#include "algos/sample_selection.h"
#include "algos/trajectory.h"

namespace motley::algos {

/// What the trainer found at each loss token of one sample, before it trained on the sample.
struct SampleScores {
  std::vector<double> log_p;  // of the drawn token
  std::vector<double> entropy;
  std::vector<uint8_t> masked;
  std::vector<double> log_p_tail, log_q_tail;  // outside the recorded ids; -inf for both: no tail, or not looked at
  std::vector<double> log_reference_ratio;     // log p - log ref; empty without a reference policy
};
struct BatchScores {
  explicit BatchScores(size_t samples) : samples(samples) {}
  std::vector<SampleScores> samples;                   // [batch]; empty where a sample is not kept
  std::map<std::string, std::vector<double>> further;  // Coefficients::samples of all micro-batches
};

struct MetricsConfig {
  RatioInterval band{0.5, 5.0};                        // of the ratios that training keeps
  std::map<std::string, std::string> sampler_formats;  // weight format by sampler group; a group without one has none
};
/// Everything but what the optimizer's step adds.
Metrics batch_metrics(std::span<const Trajectory> batch, const SampleSelection& selection, const BatchScores& scores,
                      const MetricsConfig& config = {});
/// [mis.low, mis.high] of masked importance sampling; its default [0.5, 5] where they are not given.
RatioInterval training_band(const CorrectionParameters& parameters);
/// "0-1", "2-3", "4-5" or "6+": the bucket of a token that was drawn so many weight versions ago.
std::string staleness_bucket(uint64_t versions);

}  // namespace motley::algos
