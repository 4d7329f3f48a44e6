// What a run says at its end: one row per sampler group, then where the results are.
#pragma once

#include <string>

#include "actors/run.h"

namespace motley::app {

/// A text table; rates and costs of emulated groups carry a mark that is explained below it.
std::string closing_table(const actors::RunSummary& summary);
/// The same as one JSON object (--json).
std::string closing_json(const actors::RunSummary& summary, const std::filesystem::path& folder);

}  // namespace motley::app
