// The gradient of one optimizer step: from the samples of a minibatch to the parameters' gradients.
#pragma once

#include <optional>

#include "algos/learner.h"
#include "algos/learner_metrics.h"
#include "algos/training_batch.h"

namespace motley::algos {

class StepGradient {
 public:
  StepGradient(const TrainerPass& pass, const Parameters& parameters, const Correction& correction,
               const LearnerConfig& config)
      : pass_(pass), parameters_(parameters), correction_(correction), config_(config) {}

  /// Adds the gradient of `samples` (indices into the batch), times `scale`, into the parameters' gradients; gives the
  /// surrogate loss, or nothing if no sample has an advantage. With `scores`, samples without an advantage are scored
  /// too. Before the batch's first step, log_p_old of what is scored is filled in on the way.
  std::optional<double> accumulate(TrainingBatch& batch, std::span<const size_t> samples, double scale,
                                   BatchScores* scores) const;

 private:
  struct Step;   // the samples of this step, and what has been added up
  struct Whole;  // coefficients of all of them at once
  /// Calls visit(micro, scored) for each micro-batch of `samples`.
  template <class Visit>
  void each_scored(Step& step, std::span<const size_t> samples, const Visit& visit) const;
  /// Token and sequence scope: the coefficients of one micro-batch.
  Coefficients coefficients(Step& step, const MicroBatch& micro, const Scored& scored) const;
  /// Batch scope: those of all samples, scored without gradient.
  Whole score_whole(Step& step, std::span<const size_t> samples) const;
  void add_gradient(Step& step, const MicroBatch& micro, const Scored& scored, std::vector<double> b) const;

  const TrainerPass& pass_;
  const Parameters& parameters_;
  const Correction& correction_;
  const LearnerConfig& config_;
};

}  // namespace motley::algos
