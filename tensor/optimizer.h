// AdamW over a model's parameters, with gradient clipping, a learning-rate schedule and dynamic loss scaling.
#pragma once

#include <map>
#include <string>

#include "tensor/transformer.h"

namespace motley {

struct AdamWConfig {
  double lr = 1e-4, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.0;
  double clip_norm = 1.0;             // 0: no clipping
  std::string schedule = "constant";  // "constant", "linear" (to 0 at total_steps), "cosine" (to 0)
  int64_t warmup_steps = 0;           // linear from 0; step 1 has lr / warmup_steps
  int64_t total_steps = 0;            // needed by linear and cosine
};

/// fp16 training: gradients are computed times `scale`; after an overflow the step is skipped and the scale halved,
/// after `growth_interval` clean steps it doubles (400 as in RL practice: verl, sail-sg/Precision-RL).
struct LossScale {
  bool enabled = false;
  double scale = 65536.0;
  int64_t growth_interval = 400, clean_steps = 0;
  double minimum = 1.0;
};

struct StepOutcome {
  bool skipped = false;    // an infinite or NaN gradient: nothing changed but the loss scale
  double grad_norm = 0.0;  // unscaled, before clipping; NaN when skipped
  double lr = 0.0;         // that the step used
};

class AdamW {
 public:
  AdamW(Parameters& parameters, AdamWConfig config, LossScale loss_scale = {});
  /// Takes the gradients of the parameters, updates weights and moments, and zeroes the gradients. Weight decay acts on
  /// matrices only. A non-finite gradient skips the step whether or not loss scaling is on.
  StepOutcome step();
  double learning_rate(int64_t step) const;
  int64_t steps() const { return steps_; }
  int64_t skipped() const { return skipped_; }
  const LossScale& loss_scale() const { return loss_scale_; }
  /// Everything that a resume needs, as tensors by name (adam.first/<parameter>, adam.second/<parameter>), on the CPU,
  /// and numbers; `restore` takes it on any device.
  struct State {
    std::map<std::string, Tensor> tensors;
    std::map<std::string, double> numbers;
  };
  State state() const;
  void restore(const State& state);  // throws std::runtime_error naming what is missing or has another shape

 private:
  Parameters& parameters_;
  AdamWConfig config_;
  LossScale loss_scale_;
  int64_t steps_ = 0, skipped_ = 0;
  std::map<std::string, Tensor> first_, second_;
};

}  // namespace motley
