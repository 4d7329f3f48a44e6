// From a FLEET.toml to a checked plan of a simulation. Strict, as an experiment's TOML is.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "actors/simulation/fleet_plan.h"
#include "app/schema.h"

namespace motley::app {

/// Throws InputError. `seed`: over the file's.
simulation::FleetPlan load_fleet(const std::filesystem::path& file, std::optional<uint64_t> seed);

using FleetField = BasicField<simulation::FleetPlan>;
const std::vector<SectionInfo>& fleet_sections();
const std::vector<FleetField>& fleet_fields();
/// The tables of keys in docs/fleet.md.
std::string fleet_tables();

}  // namespace motley::app
