#include "actors/reward.h"

#include <cmath>

#include "actors/system.h"
#include "envs/episode.h"

namespace motley::actors {

ScoreResult score(const envs::TaskMix& tasks, const ScoreJob& job) {
  ScoreResult result;
  const envs::TaskMix::Entry& entry = tasks.entries()[job.pick->entry];
  try {
    result.reward = envs::episode_reward(*entry.task, job.pick->problem, job.replies);
    bool finite = std::isfinite(result.reward.value);
    for (const auto& [part, value] : result.reward.parts) finite = finite && std::isfinite(value);
    if (!finite) result.failure = "the reward of task " + entry.name + " is not a finite number";
  } catch (const std::exception& error) {
    result.failure = "the reward of task " + entry.name + " failed: " + error.what();
  } catch (...) {
    result.failure = "the reward of task " + entry.name + " failed";
  }
  return result;
}

caf::behavior reward(caf::event_based_actor* self, FleetPtr fleet) {
  install_handlers(self);
  return {
      [fleet = std::move(fleet)](const Score& message, const ScoreJobPtr& job) {
        return caf::make_message(Scored{message.session},
                                 ScoreResultPtr(std::make_shared<ScoreResult>(score(*fleet->tasks, *job))));
      },
      [](Probe) { return Probe{}; },
  };
}

}  // namespace motley::actors
