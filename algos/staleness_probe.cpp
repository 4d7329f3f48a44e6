#include "algos/staleness_probe.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "algos/exact_sum.h"
#include "algos/metric_values.h"
#include "algos/sample_selection.h"

namespace motley::algos {
namespace {

/// [batch][loss tokens]
using LogProbs = std::vector<std::vector<double>>;

struct Sums {
  int64_t tokens = 0, too_old = 0;
  ExactSum all, mismatch, staleness, mismatch_k3, staleness_k3;

  void add(double log_q, double log_sampled, double log_p) {
    ++tokens;
    all.add(log_q - log_p);
    mismatch.add(log_q - log_sampled);
    staleness.add(log_sampled - log_p);
    mismatch_k3.add(k3(log_sampled - log_q));
    staleness_k3.add(k3(log_p - log_sampled));
  }
  void write(Metrics& metrics, const std::string& prefix) const {
    metrics[prefix + "tokens"] = static_cast<double>(tokens);
    metrics[prefix + "tokens_too_old"] = static_cast<double>(too_old);
    if (tokens == 0) return;
    metrics[prefix + "kl/sampler_trainer"] = representable(all.mean(tokens));
    metrics[prefix + "kl/mismatch"] = representable(mismatch.mean(tokens));
    metrics[prefix + "kl/staleness"] = representable(staleness.mean(tokens));
    metrics[prefix + "k3/mismatch"] = representable(mismatch_k3.mean(tokens));
    metrics[prefix + "k3/staleness"] = representable(staleness_k3.mean(tokens));
  }

 private:
  static double k3(double log_ratio) { return std::expm1(log_ratio) - log_ratio; }
};

}  // namespace

Metrics staleness_probe(const TrainerPass& pass, std::span<const Trajectory> batch, std::span<const size_t> samples,
                        const WeightsOfVersion& weights, int64_t max_tokens) {
  std::map<uint64_t, std::vector<size_t>> by_version;  // the samples that need a version, ascending
  for (const size_t i : samples) {
    std::vector<uint64_t> versions = batch[i].records.versions;
    versions.push_back(batch[i].batch_version);
    std::sort(versions.begin(), versions.end());
    versions.erase(std::unique(versions.begin(), versions.end()), versions.end());
    for (const uint64_t version : versions) by_version[version].push_back(i);
  }
  std::map<uint64_t, LogProbs> scored;
  for (const auto& [version, wanted] : by_version)
    if (const Parameters* parameters = weights(version))
      scored[version] = pass.drawn_log_probs(*parameters, batch, wanted, max_tokens);

  Sums all;
  std::map<std::string, Sums> groups;
  for (const size_t i : samples) {
    const Trajectory& sample = batch[i];
    const std::vector<double>& log_p = scored.at(sample.batch_version)[i];
    for (Sums* sums : {&all, &groups[sample.sampler]}) {
      for (size_t t = 0; t < sample.records.size(); ++t) {
        const auto found = scored.find(sample.records.versions[t]);
        if (found == scored.end())
          ++sums->too_old;
        else
          sums->add(sample.records.log_q[t], found->second[i][t], log_p[t]);
      }
    }
  }
  Metrics metrics;
  all.write(metrics, "probe/");
  for (const auto& [name, sums] : groups) sums.write(metrics, "group/" + name + "/probe/");
  return metrics;
}

std::vector<size_t> probe_samples(std::span<const Trajectory> batch, int64_t wanted, int64_t vocabulary,
                                  int64_t max_positions) {
  const std::vector<size_t> kept = select_samples(batch, vocabulary, max_positions).kept;
  const size_t count = std::min(static_cast<size_t>(wanted), kept.size());
  std::vector<size_t> chosen;
  for (size_t i = 0; i < count; ++i) chosen.push_back(kept[i * kept.size() / count]);
  return chosen;
}

}  // namespace motley::algos
