// report.html: one self-contained page for a run, with curves from metrics.jsonl. Extremes survive the drawing: every
// pixel column shows the smallest and the largest value that falls into it.
#pragma once

#include <filesystem>

#include "actors/run.h"

namespace motley::app {

/// Reads <folder>/experiment.toml and metrics.jsonl and writes <folder>/report.html (complete or absent).
void write_report(const std::filesystem::path& folder, const actors::RunSummary& summary);

}  // namespace motley::app
