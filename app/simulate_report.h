// What motley simulate prints.
#pragma once

#include <string>
#include <vector>

#include "actors/simulation/fleet_plan.h"
#include "actors/simulation/result.h"

namespace motley::app {

struct SimulatedFleet {
  simulation::FleetPlan plan;
  simulation::Result result;
};
/// The first is the fleet of the file, the others are the homogeneous ones that it is compared with.
std::string simulate_text(const std::vector<SimulatedFleet>& fleets);
std::string simulate_json(const std::vector<SimulatedFleet>& fleets);

}  // namespace motley::app
