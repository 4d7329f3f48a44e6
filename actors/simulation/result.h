// What a simulation found, over the updates after its warm-up.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace motley::simulation {

/// Counts of samples by their staleness in weight versions.
using Histogram = std::map<int64_t, int64_t>;
/// The smallest value that at least `share` of the samples do not exceed; 0 without any. `share` in (0, 1].
int64_t quantile(const Histogram& histogram, double share);
double mean(const Histogram& histogram);

struct GroupResult {
  std::string name;
  double share = 0.0;              // of the samples that were trained on
  double tokens_per_second = 0.0;  // drawn
  double idle_share = 0.0;         // of the time of serving replicas, without a sequence
  double unused_share = 0.0;       // of their capacity
  double replicas = 0.0;           // that serve, on average
  double cost_per_hour = 0.0;
  double cost_per_million_tokens = 0.0;  // drawn; 0 without any
  double staleness = 0.0;                // mean over its samples
  int64_t starts = 0, stops = 0, failures = 0;
};

struct Result {
  int64_t updates = 0;
  double seconds = 0.0;  // simulated
  int64_t samples = 0, failed = 0, dropped = 0;
  double tokens_per_second = 0.0, samples_per_second = 0.0, updates_per_hour = 0.0;
  double update_seconds = 0.0;
  double hunger = 0.0;  // share of the time in which the learner waited
  double cost_per_hour = 0.0, cost_per_update = 0.0, cost_per_million_tokens = 0.0;
  Histogram staleness;           // of samples: the batch's version minus their oldest
  double token_staleness = 0.0;  // mean over tokens
  std::vector<GroupResult> groups;
  uint64_t events = 0;
  std::string stopped;  // not empty: why it ended before its last update
};

}  // namespace motley::simulation
