// The probes of [probe], on the learner's own batches: mismatch told from staleness, and the drift that corrections
// leave. A plain class of the learner's thread.
#pragma once

#include <optional>

#include "actors/experiment.h"
#include "algos/drift_probe.h"
#include "algos/staleness_probe.h"

namespace motley::actors {

class Probes {
 public:
  /// `masters` are those that the learner trains; their gradients are used, and are zero afterwards.
  Probes(const Experiment& experiment, const TransformerConfig& model, Parameters& masters);
  /// What is due before the step of `update`, with time/probe; nothing else is changed.
  algos::Metrics measure(uint64_t update, const std::vector<algos::Trajectory>& batch,
                         const algos::WeightsOfVersion& weights);

 private:
  ProbeOptions options_;
  int64_t micro_batch_tokens_;
  std::optional<algos::TrainerPass> pass_;  // of the staleness probe, where it is on
  std::optional<algos::DriftProbe> drift_;
};

/// Versions behind the newest whose weights the staleness probe wants kept; 0 if it is off.
inline int64_t probed_versions(const ProbeOptions& options) {
  return options.staleness_every > 0 ? options.versions : 0;
}

}  // namespace motley::actors
