// A reward worker: scores one episode at a time on a thread of its own, so that a slow task delays nobody else. A task
// that throws, or gives something that is no number, fails its own episode only.
#pragma once

#include "actors/messages.h"

namespace motley::actors {

ScoreResult score(const envs::TaskMix& tasks, const ScoreJob& job);

caf::behavior reward(caf::event_based_actor* self, FleetPtr fleet);

}  // namespace motley::actors
