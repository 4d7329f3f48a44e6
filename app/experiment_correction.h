// The parameters of a correction in an experiment: [algo.parameters] and those of single sampler groups.
#pragma once

#include <string>

#include "algos/correction.h"
#include "app/experiment_toml.h"

namespace motley::app {

/// Every parameter of `correction` by its default. Throws InputError at `where` for a name that is no sum of pieces.
algos::CorrectionParameters correction_defaults(const std::string& correction, const Position& where);

/// The parameters that `table` (at `path`) gives, by full name ("mis.low"); enters where they stand into `keys`. Throws
/// InputError at the place of one that the correction does not have, or that is out of its range.
algos::CorrectionParameters read_correction_parameters(const Node& table, const std::string& path,
                                                       const std::string& correction, KeyPositions& keys);

}  // namespace motley::app
