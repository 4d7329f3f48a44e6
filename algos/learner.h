// The learner's step: a batch of whole groups in, one optimizer step (or epochs x minibatches of them) and metrics out.
// Serves the learner actor, replay and the tests. A plain class: one thread at a time.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "algos/correction.h"
#include "algos/trajectory.h"
#include "tensor/optimizer.h"
#include "tensor/transformer.h"

namespace motley::algos {

struct LearnerConfig {
  std::string correction = "grpo";
  CorrectionParameters correction_parameters;
  std::string advantage = "dr_grpo";
  std::string advantage_level = "episode";  // "turn": each turn has its own, from what was earned from it on
  double baseline_decay = 0.9;              // of advantage "reinforce"
  std::string reduction = "token_mean";
  std::string denominator = "kept";  // masked tokens count in the reduction's denominators; "renormalized": they do not
  int64_t max_tokens = 32;           // of a reply
  std::string overlong = "keep";     // reward_shaping.h
  int64_t overlong_tokens = 8;       // its buffer
  std::string kl = "none";           // reference_kl.h; "k1" to "k3" need set_reference
  double kl_coefficient = 0.0;
  double kl_ratio_cap = 5.0;         // of the weight p / q on k2 and k3; 0: no weight
  double entropy_coefficient = 0.0;  // times the entropy's token mean is subtracted from the loss
  int64_t minibatches = 1, epochs = 1;
  int64_t micro_batch_tokens = 8192;  // a micro-batch holds whole sequences up to this many tokens (at least one)
  kernels::NumericProfile profile;    // the trainer's; weight formats: fp32, bf16, fp16 (fp64 in tests)
  kernels::Format kv_format = kernels::Format::fp32;  // K and V are rounded to it (the profile's kv_cache)
  bool checkpoint_activations = false;                // run each layer again in the backward pass: the same bits
  AdamWConfig optimizer;
  LossScale loss_scale;
  uint64_t seed = 0;                                   // order of minibatches
  std::map<std::string, std::string> sampler_formats;  // weight format by sampler group, for the metrics by format
};

/// Numbers by metric name (docs/metrics.md): "loss", "grad_norm", "kl/sampler_trainer", "group/<name>/...".
/// NaN means "no number for this update" (the gradient norm of a skipped step) and is left out when written.
using Metrics = std::map<std::string, double>;

class Learner {
 public:
  /// `parameters` are the masters that are trained, on the device on which they lie.
  Learner(const TransformerConfig& model, Parameters& parameters, LearnerConfig config);
  /// With a correction that need not be in the registry; those of `config` are not looked at.
  Learner(const TransformerConfig& model, Parameters& parameters, LearnerConfig config,
          std::unique_ptr<Correction> correction);
  ~Learner();

  /// The weights of the KL term's reference policy: the model's own sizes, on any device.
  void set_reference(std::shared_ptr<const Parameters> reference);

  /// Trains on whole groups. Failed samples are left out and counted; a sample with NaN or infinity at a loss position
  /// is dropped and counted; if nothing is left to train on the step is empty and says so in the metrics.
  Metrics step(const std::vector<Trajectory>& batch);
  /// The gradient of one batch, without the optimizer's step: for tests and the audit. Added into the parameters'
  /// grads.
  Metrics gradient(const std::vector<Trajectory>& batch);
  /// Supervised step on (prompt, answer) token pairs: mean cross-entropy of the answer tokens.
  struct Demonstration {
    std::vector<int32_t> tokens;
    std::vector<uint8_t> loss_mask;
  };
  Metrics supervised_step(const std::vector<Demonstration>& batch);

  int64_t steps() const;          // batches stepped so far: the weight version
  void set_steps(int64_t steps);  // on resume
  AdamW& optimizer();
  /// What a resume needs besides weights, optimizer and steps: the moving baseline; by name. restore throws
  /// std::invalid_argument for text that state() does not write; what is absent stays as it is.
  std::map<std::string, std::string> state() const;
  void restore(const std::map<std::string, std::string>& state);
  const LearnerConfig& config() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace motley::algos
