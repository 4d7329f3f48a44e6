// The supervised warm start: steps on demonstrations before the first update, cached by content hash so that the second
// run starts at once.
#pragma once

#include <functional>

#include "actors/experiment.h"
#include "envs/environment.h"

namespace motley::actors {

/// `tasks`: the source of demonstrations, seeded apart from the run's own. Trains `parameters` in place for
/// experiment.warmstart.steps steps, or loads the cached result. Progress: step, of, loss. Returns true if the cache
/// was used. `stop()` true: stops early (result not cached). Throws envs::TaskError for bad data (file and line), or a
/// task that has no demonstrations.
bool warm_start(const Experiment& experiment, const envs::TaskMix& tasks, const envs::Tokenizer& tokenizer,
                const TransformerConfig& config, Parameters& parameters,
                const std::function<void(int64_t, int64_t, double)>& progress, const std::function<bool()>& stop);

}  // namespace motley::actors
