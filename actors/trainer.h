// The computation of a run's optimizer steps, wherever it is done. The learner keeps the books: which groups are
// trained on, what is recorded, published and saved. Free of CAF.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "algos/learner.h"

namespace motley::actors {

class Trainer {
 public:
  virtual ~Trainer() = default;

  struct Trained {
    algos::Metrics metrics;
    std::shared_ptr<const Parameters> weights;  // masters after the step, on the CPU
  };
  /// The probes and the optimizer steps of the next update. Blocks.
  virtual Trained step(const std::vector<algos::Trajectory>& batch) = 0;

  /// What a later trainer needs beside the weights to go on after the last step with the same bits.
  struct State {
    AdamW::State optimizer;                      // with past weights (actors/weight_history.h) where the run keeps them
    std::map<std::string, std::string> learner;  // Learner::state()
  };
  virtual State state() = 0;
};

}  // namespace motley::actors
