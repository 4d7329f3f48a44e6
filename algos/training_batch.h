// A batch while it is trained on, in one optimizer step or several, and what a correction is shown of it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "algos/batch_layout.h"
#include "algos/correction_arrays.h"
#include "algos/sample_selection.h"
#include "algos/trainer_pass.h"

namespace motley::algos {

struct TrainingBatch {
  TrainingBatch(std::span<const Trajectory> all, SampleSelection chosen);
  std::span<const Trajectory> samples;
  SampleSelection selection;
  std::vector<std::string> group_names;  // of the sampler groups, ascending
  std::vector<int64_t> sampler_group;    // [samples] index into group_names
  /// [samples][loss tokens] the trainer at the start of the batch; empty where it is not known, or not asked for.
  std::vector<std::vector<double>> log_p_old;
  /// [samples][loss tokens] the reference policy over the same support; empty where there is none.
  std::vector<std::vector<double>> log_p_reference;
  int64_t steps_taken = 0;    // optimizer steps on this batch that changed the weights
  int64_t steps_planned = 1;  // that it is given in all
};

/// The arrays of a CorrectionBatch: micro-batches joined, in the order in which they are appended.
class CorrectionInput {
 public:
  /// `log_p_old`: the correction asks for it; until a step has been taken it is the trainer's log-probability itself.
  CorrectionInput(const TrainingBatch& batch, bool with_old) : batch_(batch), with_old_(with_old) {}
  void append(const MicroBatch& micro, const Scored& scored);
  CorrectionBatch view() const;

 private:
  const TrainingBatch& batch_;
  bool with_old_;
  int64_t sequences_ = 0;
  CorrectionArrays arrays_;
};

}  // namespace motley::algos
