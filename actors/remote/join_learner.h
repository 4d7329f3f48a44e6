// A learner of a run elsewhere: computes its optimizer steps, and comes back when the connection breaks. The one entry
// of `motley learner`; no CAF type is seen here.
#pragma once

#include "actors/remote/join.h"

namespace motley::actors {

struct LearnerRequest {
  Address address;
  std::shared_ptr<const Keys> keys;  // null: none
  /// Of the run's resolved TOML: the experiment, with the trainer's device of this process. What it throws ends the
  /// learner.
  std::function<Experiment(const std::string& text)> experiment_of;
  std::chrono::seconds patience{600};  // for which a run that is lost, or not there yet, is tried for
};

/// As run_sampler. When it is to leave it finishes the step that is under way and hands its state over.
JoinEnd run_learner(const LearnerRequest& request, const std::function<void(const std::string&)>& say,
                    StopRequest& stop);

}  // namespace motley::actors
