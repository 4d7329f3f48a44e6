// The live display of a run on stderr: on a terminal a block that is redrawn, one line per sampler group; elsewhere one
// plain line per update.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "actors/experiment.h"
#include "algos/learner.h"

namespace motley::app {

struct TerminalSize {
  int columns = 80, rows = 24;
};

class Progress {
 public:
  /// `terminal`: stderr is one, of that size until resized() says otherwise.
  Progress(const Experiment& experiment, bool terminal, TerminalSize size);
  /// Before the next text, which is for a terminal of this size.
  void resized(TerminalSize size);
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
  std::vector<std::string> group_rows(const algos::Metrics& metrics, size_t most) const;
  std::string erase();
  std::string time_left(int64_t update) const;

  const Experiment experiment_;
  bool terminal_, open_line_ = false;
  TerminalSize size_;
  std::vector<size_t> drawn_;  // the block's lines: characters of each
  int64_t first_ = -1;         // update that was shown first, at start_
  double pass_ = -1;           // last evaluation, kept on the display
  std::chrono::steady_clock::time_point start_{};
};

}  // namespace motley::app
