// The live display of a run on stderr: on a terminal a block that is redrawn, one line per sampler group; elsewhere one
// plain line per update.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "actors/experiment.h"
#include "algos/learner.h"

namespace motley::app {

class Progress {
 public:
  /// `terminal`: stderr is one. `columns`: its width.
  Progress(const Experiment& experiment, bool terminal, int columns);
  /// Text to put on stderr now (may be empty).
  std::string started(int64_t parameters, int64_t vocabulary);
  std::string warm_start(int64_t step, int64_t steps, double loss, bool cached);
  std::string update(int64_t update, const algos::Metrics& metrics);
  std::string message(const std::string& text);
  /// Before anything else is written there: ends a line that is still being drawn over.
  std::string end();

 private:
  std::string plain_line(int64_t update, const algos::Metrics& metrics) const;
  std::string block(int64_t update, const algos::Metrics& metrics);
  std::string erase();
  std::string time_left(int64_t update) const;

  const Experiment experiment_;
  bool terminal_, open_line_ = false;
  int columns_, drawn_lines_ = 0;
  int64_t first_ = -1;  // update that was shown first, at start_
  double pass_ = -1;    // last evaluation, kept on the display
  std::chrono::steady_clock::time_point start_{};
};

}  // namespace motley::app
