// What a warm start learns from: the pairs of a file, or demonstrations of the tasks' training problems. Those of
// interactions are played on threads, ahead of the training.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "actors/experiment.h"
#include "envs/environment.h"

namespace motley::actors {

class Demonstrations {
 public:
  using Demonstration = algos::Learner::Demonstration;
  using Stop = std::function<bool()>;

  /// Tasks and tokenizer must outlive it. Throws envs::TaskError: a bad file (file and line), a task that has no
  /// demonstrations.
  Demonstrations(const Experiment& experiment, const envs::TaskMix& tasks, const envs::Tokenizer& tokenizer,
                 int64_t max_positions);
  ~Demonstrations();  // waits for those that are being played
  /// The next one; which that is depends on experiment, tasks and tokenizer alone. With warmstart.demonstrations so
  /// many are made, in the order of the tasks' problems, and come again in shuffled orders. Nothing: stop() was true
  /// while this one was being played. Throws envs::TaskError, and what a task's demonstrate() throws.
  std::optional<Demonstration> next(const Stop& stop);
  /// A text that is another one where the demonstrations are: of a file all of it; else the first 256, their tokens or,
  /// of those that have to be played, their problems, and the tokens of the first 16 of all. Nothing: as above.
  std::optional<std::string> identity(const Stop& stop);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace motley::actors
