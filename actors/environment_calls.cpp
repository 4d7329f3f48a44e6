// The environment's calls into tasks: where each is made, and what becomes of them when a worker hangs, leaves or is
// lost.
#include <algorithm>
#include <set>

#include "actors/environment.h"
#include "actors/system.h"

namespace motley::actors {
namespace {

constexpr int kPatience = 10;   // time limits after which a hanging worker is given up
constexpr int kMostLosses = 3;  // of workers, after which an episode fails

}  // namespace

void Environment::enqueue(uint64_t id, EpisodeJob job, std::optional<WorkPlaces::Place> place) {
  const uint64_t number = next_call_++;
  places_.wait(number, place);
  const bool awaited = job.call != EpisodeJob::Call::drop;
  calls_[number] = {.episode = id, .job = std::make_shared<EpisodeJob>(std::move(job)), .awaited = awaited};
}

void Environment::begin(uint64_t id) {
  Episode& episode = episodes_.at(id);
  episode.interaction = next_interaction_++;
  enqueue(id, {.call = EpisodeJob::Call::begin,
               .training = episode.trajectory.group,
               .interaction = episode.interaction,
               .pick = episode.pick});
}

void Environment::drop(uint64_t id, WorkPlaces::Place place, uint64_t interaction,
                       std::shared_ptr<InteractionDriver> driver) {
  enqueue(id, {.call = EpisodeJob::Call::drop, .interaction = interaction, .driver = std::move(driver)}, place);
}

std::chrono::milliseconds Environment::limit_of(const EpisodeJob& job) const {
  if (job.call == EpisodeJob::Call::score || job.call == EpisodeJob::Call::drop) return fleet_->hooks.score_limit;
  return fleet_->hooks.call_limit.value_or(fleet_->tasks->entries()[job.pick->entry].task->longest_call());
}

void Environment::work() {
  while (const auto start = places_.next()) make(start->call, start->place);
}

void Environment::make(uint64_t number, WorkPlaces::Place place) {
  Call& call = calls_.at(number);
  call.place = place;
  caf::actor handle;
  if (place == WorkPlaces::kHere) {
    call.worker = free_.back();
    free_.pop_back();
    handle = workers_[call.worker];
  } else {
    handle = handle_of(place);
  }
  if (call.job->call == EpisodeJob::Call::begin) {
    Episode& episode = episodes_.at(call.episode);
    episode.place = place;
    const envs::InteractionLimits limits{.tokens = fleet_->model.max_positions,
                                         .reply_tokens = fleet_->experiment.sampling.max_tokens};
    episode.driver = place != WorkPlaces::kHere
                         ? nullptr
                         : std::make_shared<InteractionDriver>(*fleet_->tasks, episode.pick, fleet_->tokenizer, limits);
    call.job->driver = episode.driver;
  }
  const std::chrono::milliseconds limit = limit_of(*call.job);
  // One job at a time and worker, or slot of one, so that one that hangs takes no other with it.
  self_->request(handle, limit, Work{call.episode, number}, EpisodeJobPtr(call.job))
      .then([this, number](const Worked&, const EpisodeStepPtr& step) { answered(number, *step); },
            [this, number, limit](caf::error& error) { unanswered(number, limit, error); });
}

void Environment::answered(uint64_t number, const EpisodeStep& step) {
  const auto found = calls_.extract(number);
  if (found.empty()) return;  // of a worker that is lost
  const Call& call = found.mapped();
  if (*call.place == WorkPlaces::kHere) free_.push_back(call.worker);
  places_.free(*call.place);
  if (call.awaited) stepped(call.episode, step);
  work();
}

void Environment::unanswered(uint64_t number, std::chrono::milliseconds limit, const caf::error& error) {
  const auto found = calls_.find(number);
  if (found == calls_.end()) return;
  Call& call = found->second;
  const bool here = *call.place == WorkPlaces::kHere;
  if (!here && error != caf::sec::request_timeout) return;  // it is lost, which is told by itself
  if (std::exchange(call.awaited, false))
    fail(call.episode, "its task did not answer: " + self_->system().render(error));
  self_->request(here ? workers_[call.worker] : handle_of(*call.place), kPatience * limit, Probe{number})
      .then([this, number](Probe) { answered_late(number); }, [this, number](caf::error&) { give_up(number); });
}

void Environment::answered_late(uint64_t number) {
  const auto found = calls_.find(number);
  if (found == calls_.end()) return;
  const Call call = found->second;
  answered(number, {});
  const bool left_over = call.job->call == EpisodeJob::Call::begin || call.job->call == EpisodeJob::Call::reply;
  if (!left_over || *call.place == WorkPlaces::kHere || places_.closed(*call.place)) return;
  drop(call.episode, *call.place, call.job->interaction, nullptr);
  work();
}

void Environment::give_up(uint64_t number) {
  const auto found = calls_.find(number);
  if (found == calls_.end()) return;
  if (const WorkPlaces::Place place = *found->second.place; place != WorkPlaces::kHere)
    self_->send(handle_of(place), PeerLost{"it hangs in a call into a task"});
  else if (++given_up_ == workers_.size())
    throw std::runtime_error("every worker hangs in a task");
}

caf::actor Environment::handle_of(WorkPlaces::Place place) const {
  for (const auto& [address, joined] : joined_)
    if (joined.place == place) return joined.handle;
  throw std::logic_error("a call at a place that is not there");
}

void Environment::add_worker(const caf::actor& handle, uint64_t slots) {
  self_->monitor(handle);
  joined_[handle.address()] = {handle, places_.add(slots)};
}

void Environment::leave_place(WorkPlaces::Place place) {
  for (const WorkPlaces::Call number : places_.close(place)) calls_.erase(number);
  std::set<uint64_t> in_calls;
  for (const auto& [number, call] : calls_)
    if (call.place == place && call.awaited) in_calls.insert(call.episode);
  std::vector<uint64_t> lost;
  for (const auto& [id, episode] : episodes_)
    if (episode.place == place && !in_calls.contains(id)) lost.push_back(id);
  for (const uint64_t id : lost) again(id);
}

void Environment::lose_place(WorkPlaces::Place place, const std::string& cause) {
  std::map<uint64_t, std::shared_ptr<EpisodeJob>> cut;  // calls, by their episodes
  for (auto it = calls_.begin(); it != calls_.end();) {
    const auto& [number, call] = *it;
    const bool there = call.place == place;
    if (there && call.awaited) cut[call.episode] = call.job;
    it = there ? calls_.erase(it) : std::next(it);
  }
  if (!cause.empty())
    for (auto& [id, episode] : episodes_)
      if (episode.place == place || cut.contains(id)) ++episode.losses, episode.cause = cause;
  for (const auto& [id, job] : cut)
    if (job->call == EpisodeJob::Call::score && !lost_too_often(id)) enqueue(id, *job);
  leave_place(place);
}

bool Environment::lost_too_often(uint64_t id) {
  const Episode& episode = episodes_.at(id);
  if (episode.losses <= kMostLosses) return false;
  fail(id, "it lost " + std::to_string(episode.losses) + " workers, the last because " + episode.cause);
  return true;
}

void Environment::again(uint64_t id) {
  Episode& episode = episodes_.at(id);
  episode.place.reset();
  episode.driver = nullptr;
  episode.anew = episode.drawing;
  if (episode.drawing || lost_too_often(id)) return;
  algos::Trajectory fresh;
  fresh.task = episode.trajectory.task;
  fresh.group = episode.trajectory.group;
  fresh.prompt = episode.trajectory.prompt;
  fresh.sample = episode.trajectory.sample;
  fresh.temperature = episode.trajectory.temperature;
  episode.trajectory = std::move(fresh);
  begin(id);
}

}  // namespace motley::actors
