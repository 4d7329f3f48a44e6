#include "actors/probes.h"

#include <chrono>

namespace motley::actors {
namespace {

std::vector<algos::DriftProbe::Rule> rules_of(const Experiment& experiment) {
  std::vector<algos::DriftProbe::Rule> rules;
  for (const std::string& name : experiment.probe.drift)
    rules.push_back({name, algos::parameters_of(name, experiment.correction_parameters())});
  return rules;
}

bool due(int64_t every, uint64_t update) { return every > 0 && update % static_cast<uint64_t>(every) == 0; }

}  // namespace

Probes::Probes(const Experiment& experiment, const TransformerConfig& model, Parameters& masters)
    : options_(experiment.probe), micro_batch_tokens_(experiment.learner_config().micro_batch_tokens) {
  if (options_.staleness_every > 0) pass_.emplace(model, experiment.trainer_profile(), false);
  if (options_.drift_every > 0) drift_.emplace(model, masters, experiment.learner_config(), rules_of(experiment));
}

algos::Metrics Probes::measure(uint64_t update, const std::vector<algos::Trajectory>& batch,
                               const algos::WeightsOfVersion& weights) {
  const auto start = std::chrono::steady_clock::now();
  algos::Metrics metrics;
  if (pass_ && due(options_.staleness_every, update)) {
    const TransformerConfig& model = pass_->model();
    const std::vector<size_t> samples =
        algos::probe_samples(batch, options_.staleness_samples, model.vocabulary, model.max_positions);
    metrics = algos::staleness_probe(*pass_, batch, samples, weights, micro_batch_tokens_);
  }
  if (drift_ && due(options_.drift_every, update)) metrics.merge(drift_->measure(batch, options_.drift_samples));
  if (!metrics.empty())
    metrics["time/probe"] = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return metrics;
}

}  // namespace motley::actors
