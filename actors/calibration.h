// The burst that measures a replica's capacity when it joins.
#pragma once

#include <vector>

#include "actors/fleet.h"

namespace motley::actors {

/// Requests for Decoder::calibrate: twice as many as a replica of the group has slots, with prompts of the run's tasks.
std::vector<GenerateRequest> calibration_requests(const Fleet& fleet, size_t group);

}  // namespace motley::actors
