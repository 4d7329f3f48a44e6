// A run in simulated time: episodes on credit, their turns on the replicas of a fleet, whole groups to a learner,
// weight versions back. Routing, autoscaling, staleness and batching are the code of actors/policy/ that a run uses.
#pragma once

#include "actors/simulation/fleet_plan.h"
#include "actors/simulation/result.h"

namespace motley::simulation {

/// The same plan gives the same result, bit for bit. The plan's numbers must be in the ranges that docs/fleet.md
/// states.
Result simulate(const FleetPlan& plan);

/// The plan with this group alone, as many replicas as compare.replicas or as have the capacity of the whole fleet, and
/// no autoscaler. Throws std::out_of_range for a group that is none.
FleetPlan homogeneous(const FleetPlan& plan, const std::string& group);

}  // namespace motley::simulation
