// What an evaluator does for a run elsewhere: it evaluates the weights that come.
#pragma once

#include "actors/fleet.h"
#include "actors/remote/peer_line.h"
#include "actors/remote/setting.h"

namespace motley::actors {

/// What evaluate_version() looks at, of this process: its tasks are made, and have what they need here. Throws what
/// they throw.
FleetPtr evaluating_fleet(Experiment experiment, const Setting& setting);

/// Until the run is gone. `served`: called when the run has been told that it is ready. Throws LineClosed then,
/// JoinRefused when the run does not want it, and what an evaluation throws, of which the run has been told.
void serve_evaluations(PeerLine& line, const Fleet& fleet, const std::function<void()>& served);

}  // namespace motley::actors
