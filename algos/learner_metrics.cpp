#include "algos/learner_metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace motley::algos {
namespace {

constexpr double kDiagnosticLow = 0.2, kDiagnosticHigh = 5.0;

class Mean {
 public:
  void add(double value) {
    sum_ += value;
    ++count_;
  }
  /// Nothing is written for a mean over nothing.
  void write(Metrics& metrics, const std::string& name) const {
    if (count_ > 0) metrics[name] = sum_ / static_cast<double>(count_);
  }

 private:
  double sum_ = 0.0;
  int64_t count_ = 0;
};

double representable(double value) {
  constexpr double kLargest = std::numeric_limits<double>::max();
  return std::isinf(value) ? std::copysign(kLargest, value) : value;
}

/// Nearest rank: the smallest value that at least a share of `share` does not exceed. Reorders.
double quantile(std::vector<double>& values, double share) {
  const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
  const auto place = values.begin() + static_cast<int64_t>(std::max<size_t>(rank, 1) - 1);
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

double age(const Trajectory& sample, uint64_t version) {
  return static_cast<double>(sample.batch_version) - static_cast<double>(version);
}

/// The metrics that exist for all samples together and for each sampler group.
class SharedMetrics {
 public:
  void add(const Trajectory& sample, const SampleScores& scores) {
    reward_.add(sample.reward);
    tokens_.add(static_cast<double>(sample.records.size()));
    staleness_.add(age(sample, sample.oldest_version()));
    log_ratios_.insert(log_ratios_.end(), scores.log_ratio.begin(), scores.log_ratio.end());
  }
  void write(Metrics& metrics, const std::string& prefix) const {
    reward_.write(metrics, prefix + "reward/mean");
    tokens_.write(metrics, prefix + "episode/tokens");
    staleness_.write(metrics, prefix + "staleness/mean");
    if (log_ratios_.empty()) return;
    const RatioStatistics ratios = ratio_statistics(log_ratios_);
    metrics[prefix + "kl/sampler_trainer"] = ratios.kl;
    metrics[prefix + "kl/k3"] = ratios.k3;
    metrics[prefix + "ratio/outside"] = ratios.outside;
    metrics[prefix + "ratio/max"] = ratios.max;
    if (prefix.empty()) metrics["ess"] = ratios.ess;
  }

 private:
  Mean reward_, tokens_, staleness_;
  std::vector<double> log_ratios_;
};

void add_episode_metrics(Metrics& metrics, std::span<const Trajectory> batch, std::span<const size_t> kept) {
  std::map<std::string, Mean> parts;
  Mean turns, format_error, truncated, token_age;
  double oldest = 0.0;
  for (const size_t i : kept) {
    const Trajectory& sample = batch[i];
    for (const auto& [name, value] : sample.reward_parts) parts[name].add(value);
    turns.add(sample.turns);
    format_error.add(sample.format_error ? 1.0 : 0.0);
    truncated.add(sample.truncated ? 1.0 : 0.0);
    oldest = std::max(oldest, age(sample, sample.oldest_version()));
    for (const uint64_t version : sample.records.versions) token_age.add(age(sample, version));
  }
  for (const auto& [name, mean] : parts) mean.write(metrics, "reward/" + name);
  turns.write(metrics, "episode/turns");
  format_error.write(metrics, "episode/format_error");
  truncated.write(metrics, "episode/truncated");
  token_age.write(metrics, "staleness/token_mean");
  if (!kept.empty()) metrics["staleness/max"] = oldest;
}

}  // namespace

RatioStatistics ratio_statistics(std::span<const double> log_ratios) {
  const auto n = static_cast<double>(log_ratios.size());
  const double largest = *std::max_element(log_ratios.begin(), log_ratios.end());
  RatioStatistics result;
  double sum = 0.0, squares = 0.0, outside = 0.0;
  for (const double x : log_ratios) {
    result.kl -= x;
    result.k3 += std::expm1(x) - x;  // r - 1 - log r without cancellation near r = 1
    outside += x < std::log(kDiagnosticLow) || x > std::log(kDiagnosticHigh) ? 1.0 : 0.0;
    const double scaled = std::exp(x - largest);  // the share is the same for r / max r, which cannot overflow
    sum += scaled;
    squares += scaled * scaled;
  }
  result.kl = representable(result.kl / n) + 0.0;  // + 0.0: no negative zero
  result.k3 = representable(result.k3 / n);
  result.outside = outside / n;
  result.max = representable(std::exp(largest));
  result.ess = sum * sum / (n * squares);
  return result;
}

Metrics batch_metrics(std::span<const Trajectory> batch, const SampleSelection& selection, const BatchScores& scores) {
  Metrics metrics;
  metrics["samples/count"] = static_cast<double>(batch.size());
  metrics["samples/failed"] = static_cast<double>(selection.failed);
  metrics["samples/dropped_nan"] = static_cast<double>(selection.dropped_nan);
  if (!selection.groups.empty()) {
    metrics["advantage/zero_groups"] =
        static_cast<double>(selection.zero_groups) / static_cast<double>(selection.groups.size());
  }
  SharedMetrics all;
  std::map<std::string, SharedMetrics> by_sampler;
  std::map<std::string, int64_t> sampler_samples;
  Mean entropy, masked;
  for (const size_t i : selection.kept) {
    all.add(batch[i], scores.samples[i]);
    by_sampler[batch[i].sampler].add(batch[i], scores.samples[i]);
    ++sampler_samples[batch[i].sampler];
    for (const double value : scores.samples[i].entropy) entropy.add(value);
    for (const uint8_t value : scores.samples[i].masked) masked.add(value);
  }
  all.write(metrics, "");
  entropy.write(metrics, "entropy");
  masked.write(metrics, "ratio/masked");
  add_episode_metrics(metrics, batch, selection.kept);
  for (const auto& [name, values] : by_sampler) {
    values.write(metrics, "group/" + name + "/");
    metrics["group/" + name + "/share"] =
        static_cast<double>(sampler_samples[name]) / static_cast<double>(selection.kept.size());
  }
  for (const auto& [name, values] : scores.further) {
    std::vector<double> sorted = values;
    metrics[name + "_median"] = representable(quantile(sorted, 0.5));
    metrics[name + "_p99"] = representable(quantile(sorted, 0.99));
  }
  return metrics;
}

}  // namespace motley::algos
