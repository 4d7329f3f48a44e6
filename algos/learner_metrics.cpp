#include "algos/learner_metrics.h"

#include <algorithm>
#include <cmath>

#include "algos/batch_layout.h"
#include "algos/metric_values.h"

namespace motley::algos {
namespace {

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

double age(const Trajectory& sample, uint64_t version) {
  return static_cast<double>(sample.batch_version) - static_cast<double>(version);
}

/// What there is for all samples together and for each sampler group.
class GroupMetrics {
 public:
  void add(const Trajectory& sample, const Diagnostics& scores) {
    reward_.add(sample.reward);
    tokens_.add(static_cast<double>(sample.records.size()));
    staleness_.add(age(sample, sample.oldest_version()));
    scores_ += scores;
    ++samples_;
  }
  void write(Metrics& metrics, const std::string& prefix) const {
    reward_.write(metrics, prefix + "reward/mean");
    tokens_.write(metrics, prefix + "episode/tokens");
    staleness_.write(metrics, prefix + "staleness/mean");
    scores_.write(metrics, prefix);
  }
  int64_t samples() const { return samples_; }
  const Diagnostics& scores() const { return scores_; }

 private:
  Mean reward_, tokens_, staleness_;
  Diagnostics scores_;
  int64_t samples_ = 0;
};

TokenScore token_score(const TokenRecords& records, const SampleScores& scores, size_t t) {
  TokenScore token{.log_p = scores.log_p[t],
                   .log_q = records.log_q[t],
                   .entropy = scores.entropy[t],
                   .masked = scores.masked[t] != 0};
  if (!scores.log_q_tail.empty() && scores.log_q_tail[t] > kNoMass) {
    token.has_tail = true;
    token.log_p_tail = scores.log_p_tail[t];
    token.log_q_tail = scores.log_q_tail[t];
  }
  return token;
}

/// The sums of one sample, by staleness bucket: it is sampled while weights are swapped.
std::map<std::string, Diagnostics> by_staleness(const Trajectory& sample, const SampleScores& scores,
                                                const RatioInterval& band) {
  std::map<std::string, Diagnostics> parts;
  for (size_t t = 0; t < scores.log_p.size(); ++t) {
    const uint64_t version = sample.records.versions[t];
    const uint64_t versions = sample.batch_version > version ? sample.batch_version - version : 0;
    parts[staleness_bucket(versions)].add(token_score(sample.records, scores, t), band);
  }
  return parts;
}

void add_episode_metrics(Metrics& metrics, std::span<const Trajectory> batch, std::span<const size_t> kept) {
  std::map<std::string, Mean> parts;
  Mean turns, format_error, truncated, token_age;
  double oldest = 0.0;
  for (const size_t i : kept) {
    const Trajectory& sample = batch[i];
    for (const auto& [name, value] : sample.reward_parts) parts[name].add(value);
    turns.add(static_cast<double>(sample.all_turns().size()));
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

/// Of interactions. Endings are shares of all of them, the failed included, so that they add up to 1.
void add_interaction_metrics(Metrics& metrics, std::span<const Trajectory> batch, std::span<const size_t> kept) {
  std::map<std::string, double> endings;
  double episodes = 0.0, replies = 0.0, errors = 0.0;
  for (const Trajectory& sample : batch) {
    if (sample.ending.empty()) continue;
    ++endings[sample.ending];
    ++episodes;
  }
  for (const auto& [ending, count] : endings) metrics["episode/end/" + ending] = count / episodes;
  Mean read;
  for (const size_t i : kept) {
    const Trajectory& sample = batch[i];
    if (sample.ending.empty()) continue;
    read.add(static_cast<double>(sample.tokens.size() - sample.records.size()));
    replies += static_cast<double>(sample.turns.size());
    errors += static_cast<double>(sample.format_errors);
  }
  read.write(metrics, "episode/read_tokens");
  if (replies > 0.0) metrics["reply/format_error"] = errors / replies;
}

}  // namespace

RatioInterval training_band(const CorrectionParameters& parameters) {
  const auto edge = [&](const char* name, double otherwise) {
    const auto found = parameters.find(name);
    const double* value = found == parameters.end() ? nullptr : std::get_if<double>(&found->second);
    return value ? *value : otherwise;
  };
  return {edge("mis.low", 0.5), edge("mis.high", 5.0)};
}

std::string staleness_bucket(uint64_t versions) {
  constexpr const char* kNames[] = {"0-1", "2-3", "4-5", "6+"};
  return kNames[std::min<uint64_t>(versions / 2, 3)];
}

Metrics batch_metrics(std::span<const Trajectory> batch, const SampleSelection& selection, const BatchScores& scores,
                      const MetricsConfig& config) {
  Metrics metrics;
  metrics["samples/count"] = static_cast<double>(batch.size());
  metrics["samples/failed"] = static_cast<double>(selection.failed);
  metrics["samples/dropped_nan"] = static_cast<double>(selection.dropped_nan);
  if (!selection.groups.empty()) {
    metrics["advantage/zero_groups"] =
        static_cast<double>(selection.zero_groups) / static_cast<double>(selection.groups.size());
  }
  GroupMetrics all;
  std::map<std::string, GroupMetrics> groups;
  std::map<std::string, Diagnostics> formats, buckets;
  Mean reference_k1, reference_k3;
  for (const size_t i : selection.kept) {
    Diagnostics whole;
    for (auto& [bucket, part] : by_staleness(batch[i], scores.samples[i], config.band)) {
      whole += part;
      part.close_sample();
      buckets[bucket] += part;
    }
    whole.close_sample();
    all.add(batch[i], whole);
    groups[batch[i].sampler].add(batch[i], whole);
    for (const double x : scores.samples[i].log_reference_ratio) {
      reference_k1.add(x);
      reference_k3.add(representable(std::expm1(-x) + x));
    }
  }
  all.write(metrics, "");
  reference_k1.write(metrics, "kl/reference");
  reference_k3.write(metrics, "kl/reference_k3");
  add_episode_metrics(metrics, batch, selection.kept);
  add_interaction_metrics(metrics, batch, selection.kept);
  for (const auto& [name, group] : groups) {
    group.write(metrics, "group/" + name + "/");
    metrics["group/" + name + "/share"] =
        static_cast<double>(group.samples()) / static_cast<double>(selection.kept.size());
    const auto format = config.sampler_formats.find(name);
    if (format != config.sampler_formats.end()) formats[format->second] += group.scores();
  }
  for (const auto& [name, sums] : formats) sums.write(metrics, "format/" + name + "/");
  for (const auto& [name, sums] : buckets) sums.write(metrics, "staleness/" + name + "/");
  for (const auto& [name, values] : scores.further) {
    std::vector<double> sorted = values;
    metrics[name + "_median"] = representable(quantile(sorted, 0.5));
    metrics[name + "_p99"] = representable(quantile(sorted, 0.99));
  }
  return metrics;
}

}  // namespace motley::algos
