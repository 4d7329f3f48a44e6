// The trainer's forward pass over a micro-batch, and the way back from the head's results.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "algos/batch_layout.h"
#include "algos/trajectory.h"
#include "tensor/transformer.h"

namespace motley::algos {

/// What the head says at every loss token of a micro-batch, and the head itself for the way back.
struct Scored {
  std::shared_ptr<TrainerContext> context;  // which checkpointed layers ask again on the way back
  HeadResult head;
  std::vector<double> log_p;        // [entries] of the selected ids
  std::vector<double> log_outside;  // [tokens] log of the mass outside the selected ids
  std::vector<double> entropy;      // [tokens]
};

class TrainerPass {
 public:
  /// `model` must be resolved. The profile's K and V are rounded to its kv_cache. For parameters on `device`.
  TrainerPass(const TransformerConfig& model, const kernels::NumericProfile& profile, bool checkpoint_activations,
              const Device& device = {});
  const TransformerConfig& model() const { return model_; }

  /// Keeps a graph unless NoGrad holds.
  Scored score(const Parameters& parameters, const MicroBatch& micro) const;
  /// The drawn tokens' log-probabilities without gradient, over each token's support: [batch][loss tokens], empty for
  /// what is not among `samples`. In micro-batches of at most `max_tokens`.
  std::vector<std::vector<double>> drawn_log_probs(const Parameters& parameters, std::span<const Trajectory> batch,
                                                   std::span<const size_t> samples, int64_t max_tokens) const;

 private:
  TransformerConfig model_;
  kernels::NumericProfile profile_;
  bool checkpoint_activations_;
  RopeTable rope_;
};

/// Adds the gradient of sum_k d_log_p[k] log p_k + sum_t d_entropy[t] H_t, times `scale`, into the gradients of the
/// parameters. An empty d_entropy is zero.
void propagate(const Scored& scored, std::vector<double> d_log_p, std::vector<double> d_entropy, double scale);

}  // namespace motley::algos
