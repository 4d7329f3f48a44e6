// An evaluator of a run elsewhere: computes its evaluations, and comes back when the connection breaks. The one entry
// of `motley evaluator`; no CAF type is seen here.
#pragma once

#include "actors/remote/join.h"

namespace motley::actors {

struct EvaluatorRequest {
  Address address;
  std::shared_ptr<const Keys> keys;  // null: none
  /// Of the run's resolved TOML: the experiment, with the evaluation's device of this process. What it throws ends the
  /// evaluator.
  std::function<Experiment(const std::string& text)> experiment_of;
  std::chrono::seconds patience{600};  // for which a run that is lost, or not there yet, is tried for
};

/// As run_sampler. When it is to leave it goes at once: the run itself makes the evaluation that is under way. Throws
/// what the tasks throw that cannot be had here, and what an evaluation does that cannot be computed here.
JoinEnd run_evaluator(const EvaluatorRequest& request, const std::function<void(const std::string&)>& say,
                      StopRequest& stop);

}  // namespace motley::actors
