// motley simulate: a fleet in simulated time, and fleets of one group beside it.
#include <cstdio>
#include <optional>

#include "actors/simulation/simulation.h"
#include "app/commands.h"
#include "app/fleet_toml.h"
#include "app/simulate_report.h"

namespace motley::app {

int simulate_command(const SimulateArguments& arguments) {
  const simulation::FleetPlan plan = load_fleet(arguments.toml, arguments.seed);
  std::vector<SimulatedFleet> fleets{{plan, simulation::simulate(plan)}};
  for (const std::string& group : plan.compare.homogeneous) {
    simulation::FleetPlan alone = simulation::homogeneous(plan, group);
    simulation::Result result = simulation::simulate(alone);
    fleets.push_back({std::move(alone), std::move(result)});
  }
  std::fputs((arguments.json ? simulate_json(fleets) : simulate_text(fleets)).c_str(), stdout);
  return 0;
}

}  // namespace motley::app
