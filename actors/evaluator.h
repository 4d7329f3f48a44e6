// The evaluator: pass@k of a weight version, in every profile of eval.profiles.
#pragma once

#include "actors/messages.h"

namespace motley::actors {

/// By metric name: eval/pass_at_K of the first set in the first profile, eval/[<profile>/][<set>/]pass_at_K of further
/// ones, the gaps between profiles, and eval/version (docs/metrics.md). Nothing when fleet.stopping was set meanwhile.
algos::Metrics evaluate_version(const Fleet& fleet, const Parameters& parameters, uint64_t version);

caf::behavior evaluator(caf::event_based_actor* self, FleetPtr fleet);

}  // namespace motley::actors
