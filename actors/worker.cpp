#include "actors/worker.h"

#include "actors/system.h"
#include "envs/episode.h"

namespace motley::actors {

EpisodeStep score(const envs::TaskMix& tasks, const EpisodeJob& job) {
  EpisodeStep result;
  const envs::TaskMix::Entry& entry = tasks.entries()[job.pick->entry];
  try {
    result.outcome.reward = envs::episode_reward(*entry.task, job.pick->problem, job.replies);
    if (const std::string wrong = envs::wrong_reward(result.outcome.reward, job.replies.size()); !wrong.empty())
      result.outcome.failure = "the reward of task " + entry.name + " is " + wrong;
  } catch (const std::exception& error) {
    result.outcome.failure = "the reward of task " + entry.name + " failed: " + error.what();
  } catch (...) {
    result.outcome.failure = "the reward of task " + entry.name + " failed";
  }
  return result;
}

namespace {

EpisodeStep perform(const envs::TaskMix& tasks, const EpisodeJob& job) {
  switch (job.call) {
    case EpisodeJob::Call::score:
      return score(tasks, job);
    case EpisodeJob::Call::begin:
      return job.driver->begin();
    case EpisodeJob::Call::reply:
      return job.driver->replied(job.prompt, job.drawn);
    case EpisodeJob::Call::drop:
      job.driver->drop();
      return {};
  }
  return {};
}

}  // namespace

caf::behavior worker(caf::event_based_actor* self, FleetPtr fleet) {
  install_handlers(self);
  return {
      [fleet = std::move(fleet)](const Work& message, const EpisodeJobPtr& job) {
        return caf::make_message(Worked{message.session},
                                 EpisodeStepPtr(std::make_shared<EpisodeStep>(perform(*fleet->tasks, *job))));
      },
      [](Probe probe) { return probe; },
  };
}

}  // namespace motley::actors
