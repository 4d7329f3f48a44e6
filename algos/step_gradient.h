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
  /// surrogate loss, or nothing if nothing has a gradient: no sample an advantage, and neither KL nor entropy a
  /// coefficient. With `scores`, samples without a gradient are scored too. Before the batch's first step, log_p_old of
  /// what is scored is filled in on the way.
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
  /// Samples that are not trained on: scored for the metrics, and shown to no correction.
  void note_filtered(Step& step, std::span<const size_t> samples) const;
  /// Batch scope, or denominators that depend on masks: those of all samples, scored without gradient.
  Whole score_whole(Step& step, std::span<const size_t> samples) const;
  /// The factors of the reduction, over all samples of the step before any split: how the step is cut into
  /// micro-batches does not matter. `masked` tokens of each sample are left out of the denominators.
  std::vector<double> factors(const TrainingBatch& batch, std::span<const size_t> samples,
                              std::span<const int64_t> masked) const;
  /// The terms beside the correction's: adds their cotangents, gives their loss.
  double add_terms(const Step& step, const MicroBatch& micro, const Scored& scored, size_t t, size_t place,
                   std::vector<double>& b) const;
  void add_gradient(Step& step, const MicroBatch& micro, const Scored& scored, std::vector<double> b) const;

  bool kl_in_loss() const { return config_.kl == "k2" || config_.kl == "k3"; }
  bool has_terms() const { return kl_in_loss() || config_.entropy_coefficient != 0.0; }

  const TrainerPass& pass_;
  const Parameters& parameters_;
  const Correction& correction_;
  const LearnerConfig& config_;
};

}  // namespace motley::algos
