// Whether a model can fit into this machine at all: asked before anything is made.
#pragma once

#include <cstdint>
#include <string>

#include "actors/experiment.h"

namespace motley::app {

/// Bytes that a run of this experiment holds at the very least: master weights, gradients, two moments and a snapshot
/// of each weight, and every engine's table of rotary angles. 0 for a model from a folder, whose files bound it.
double least_memory(const Experiment& experiment);
/// Of the machine; 0 if it cannot be asked.
double physical_memory();
/// "23.5 GiB"
std::string bytes_text(double bytes);
/// Throws InputError if the experiment needs more than the machine has. `source`: what the experiment was read from.
void require_memory(const Experiment& experiment, const std::string& source);

}  // namespace motley::app
