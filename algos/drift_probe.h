// The drift that a correction leaves: the squared norm of the expected gradient when every advantage is 1. A constant
// advantage says nothing about which token was better, so an unbiased update is 0 (docs/corrections.md); what is left
// pulls the policy, update by update, where no reward asks for it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "algos/learner.h"
#include "algos/trainer_pass.h"

namespace motley::algos {

/// The gradient of a sample is the sum over its loss tokens, of the real model in the trainer's profile (an fp16
/// trainer's in fp32, which needs no loss scale), in float32. Prompts are dealt into two halves; with g1 and g2 their
/// mean gradients per sample, <g1, g2> has the expectation |E g|^2, where |g|^2 would add the variance. It may be
/// negative.
class DriftProbe {
 public:
  struct Rule {
    std::string correction;
    CorrectionParameters parameters;
  };
  /// Uses the gradients of `parameters` and leaves them zero. Takes model, profile and micro_batch_tokens of `config`.
  /// Throws std::invalid_argument for a rule that there is none of.
  DriftProbe(const TransformerConfig& model, Parameters& parameters, const LearnerConfig& config,
             const std::vector<Rule>& rules);
  ~DriftProbe();
  /// On the first prompts of the batch that hold `samples` samples together. For each rule
  /// drift/<correction>/squared_norm and drift/<correction>/noise, (|g1|^2 + |g2|^2) / 2 - <g1, g2>: what sampling
  /// alone puts into |g|^2. Nothing if there are not two prompts.
  Metrics measure(const std::vector<Trajectory>& batch, int64_t samples);

 private:
  void measure(const std::vector<Trajectory>& batch, const std::vector<size_t> (&halves)[2], const std::string& name,
               const Correction& correction, Metrics& metrics);

  Parameters& parameters_;
  LearnerConfig config_;
  TrainerPass pass_;
  std::vector<std::pair<std::string, std::unique_ptr<Correction>>> corrections_;
};

}  // namespace motley::algos
