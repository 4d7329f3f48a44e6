// The computation of a run's optimizer steps, wherever it is done. The learner keeps the books: which groups are
// trained on, what is recorded, published and saved. Free of CAF.
#pragma once

#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "algos/learner.h"

namespace motley::actors {

/// Whoever computed is gone and nobody takes the place: no further step is taken. what() says why.
class TrainerGone : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Trainer {
 public:
  virtual ~Trainer() = default;

  struct Trained {
    algos::Metrics metrics;
    std::shared_ptr<const Parameters> weights;  // masters after the step, on the CPU
  };
  /// The probes and the optimizer steps of the next update. Blocks. Throws TrainerGone.
  virtual Trained step(const std::vector<algos::Trajectory>& batch) = 0;

  /// What a later trainer needs to go on after the last step with the same bits.
  struct State {
    AdamW::State optimizer;                      // with past weights (actors/weight_history.h) where the run keeps them
    std::map<std::string, std::string> learner;  // Learner::state()
    std::shared_ptr<const Parameters> weights;   // after the last step, on the CPU
  };
  /// Blocks. Throws TrainerGone.
  virtual State state() = 0;
  /// Where states come from afar: there has been none for so long that one should be asked for.
  virtual bool wants_saving() const { return false; }
  /// Whoever computes may go: the state has been asked for.
  virtual void release() {}
};

}  // namespace motley::actors
