// The evaluator: pass@k of a weight version, in every profile of eval.profiles.
#pragma once

#include "actors/messages.h"

namespace motley::actors {

/// By metric name: eval/pass_at_K of the first set in the first profile, eval/[<profile>/][<set>/]pass_at_K of further
/// ones, the gaps between profiles, and eval/version (docs/metrics.md). Nothing when fleet.stopping was set meanwhile,
/// or stop() was true.
algos::Metrics evaluate_version(const Fleet& fleet, const Parameters& parameters, uint64_t version,
                                const std::function<bool()>& stop = {});

/// The same, by the first evaluator that has joined, or here if there is none or it does not get to its end.
/// `say`: what the run's log is to say.
algos::Metrics evaluate_anywhere(const Fleet& fleet, const Parameters& parameters, const Evaluate& asked,
                                 const std::function<void(const std::string&)>& say);

caf::behavior evaluator(caf::event_based_actor* self, FleetPtr fleet, caf::actor supervisor);

}  // namespace motley::actors
