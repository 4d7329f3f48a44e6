// A problem of `motley audit` as JSON: all that is needed to compute every figure elsewhere (docs/audit.md).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "algos/audit/problem.h"

namespace motley::app {

/// Numbers are written so that they read back to the same double; a log-probability of null is a probability of 0.
nlohmann::json problem_json(const algos::audit::Problem& problem);
/// Reads and checks everything; throws InputError with the file and the member that is wrong.
algos::audit::Problem read_problem(const std::string& file);

}  // namespace motley::app
