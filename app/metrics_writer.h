// metrics.jsonl: one JSON object per update, keys sorted, numbers in their shortest exact form. NaN is left out.
#pragma once

#include <filesystem>
#include <string>

#include "algos/learner.h"

namespace motley::app {

/// The line of one update, without the newline: {"update":N, ...}.
std::string metrics_line(int64_t update, const algos::Metrics& metrics);

/// Appends whole lines (one write each, then flushed to the system).
class MetricsWriter {
 public:
  /// `keep_through` >= 0: an existing file is first cut after the line of that update (resume).
  MetricsWriter(const std::filesystem::path& file, int64_t keep_through = -1);
  ~MetricsWriter();
  void write(int64_t update, const algos::Metrics& metrics);

 private:
  int descriptor_;
  std::filesystem::path file_;
};

}  // namespace motley::app
