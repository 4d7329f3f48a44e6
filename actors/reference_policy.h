// The weights that a KL term holds the policy to. They lie in <run>/reference/ from the start of the run on, so that a
// resumed run has the same ones whatever has become of the folder that they came from.
#pragma once

#include <filesystem>
#include <memory>

#include "actors/fleet.h"

namespace motley::actors {

/// Of a fresh run: algo.reference, or else `start`, the weights before the first update; written to the run's folder.
/// Throws CheckpointError for a checkpoint of another model or tokenizer.
std::shared_ptr<const Parameters> fresh_reference(const Fleet& fleet, const Parameters& start);
/// Of a resumed run. Throws CheckpointError if the run's folder has none.
std::shared_ptr<const Parameters> resumed_reference(const Fleet& fleet);

}  // namespace motley::actors
