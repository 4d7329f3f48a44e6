// The results of `motley mismatch`, and how they are shown: a table, JSON, a page of plots.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "algos/mismatch/measure.h"

namespace motley::app {

/// One measurement for every sampler's profile, all against one trainer's.
struct MismatchReport {
  std::string model, prompts;  // the folder; where the prompts come from, in words
  int64_t prompt_count = 0;
  algos::mismatch::Drawing drawing;
  std::vector<algos::mismatch::Measurement> measurements;  // at least one
};

/// Everything about one measurement, as tables.
std::string mismatch_section(const algos::mismatch::Measurement& measurement);
/// The section of a single sampler; for several, tables with all of them side by side.
std::string mismatch_text(const MismatchReport& report);
nlohmann::json mismatch_json(const MismatchReport& report);
/// One self-contained HTML page.
std::string mismatch_page(const MismatchReport& report);

/// How a measurement is called: "fp8 against fp32".
std::string mismatch_title(const algos::mismatch::Measurement& measurement);
/// 12,345,678
std::string with_commas(int64_t count);

}  // namespace motley::app
