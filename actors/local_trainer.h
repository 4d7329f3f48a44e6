// The trainer of this process, with the threads and the device that the process has. One thread at a time.
#pragma once

#include <optional>

#include "actors/fleet.h"
#include "actors/probes.h"
#include "actors/trainer.h"
#include "kernels/parallel.h"

namespace motley::actors {

/// How many versions behind the newest imposed staleness or its probe may ask for.
size_t history_length(const Experiment& experiment);

class LocalTrainer final : public Trainer {
 public:
  /// Trains start->parameters in place; takes start->optimizer and start->history. `weights`: a copy of the parameters
  /// on the CPU. Throws std::runtime_error or std::invalid_argument for a state that does not fit the model.
  LocalTrainer(const Experiment& experiment, const TransformerConfig& model, StartingPointPtr start,
               ParametersPtr weights);

  Trained step(const std::vector<algos::Trajectory>& batch) override;
  State state() override;

 private:
  /// Null for a version that is neither the newest nor in the history.
  const Parameters* weights_of(uint64_t version) const;

  StartingPointPtr start_;
  algos::Learner learner_;
  Probes probes_;
  kernels::ComputeClient compute_{kernels::ComputeSide::trainer};
  uint64_t version_;
  ParametersPtr snapshot_;              // of version_, on the CPU
  std::vector<ParametersPtr> history_;  // for imposed staleness and its probe: before snapshot_, oldest first
  size_t history_length_;
};

}  // namespace motley::actors
