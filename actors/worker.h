// A worker: makes one call into a task at a time on a thread of its own, so that what blocks there (a reward, a command
// in a sandbox, a program elsewhere) delays nobody else.
#pragma once

#include "actors/messages.h"

namespace motley::actors {

/// The reward of an episode that is no interaction. A task that throws, or gives something that is no number, fails its
/// own episode only.
EpisodeStep score(const envs::TaskMix& tasks, const EpisodeJob& job);

caf::behavior worker(caf::event_based_actor* self, FleetPtr fleet);

}  // namespace motley::actors
