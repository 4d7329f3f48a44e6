#include "actors/environment.h"

#include <algorithm>

#include "actors/policy/episode.h"
#include "actors/system.h"
#include "envs/episode.h"

namespace motley::actors {

constexpr int kPatience = 10;  // time limits after which a hanging worker is given up

caf::behavior Environment::start(FleetPtr fleet, caf::actor router, caf::actor learner,
                                 std::vector<caf::actor> workers) {
  fleet_ = std::move(fleet);
  router_ = std::move(router);
  learner_ = std::move(learner);
  for (caf::actor& worker : workers) workers_.push_back({std::move(worker), true});
  return {
      [this](const StartIssuing& start) {
        next_prompt_ = start.next_prompt;
        again_.assign(start.again.begin(), start.again.end());
        credits_ = static_cast<uint64_t>(fleet_->experiment.run.concurrency);
        issue_on_credit();
      },
      [this](const Credits& credits) {
        credits_ += credits.episodes;
        issue_on_credit();
      },
      [this](const IssueBatch& batch) {
        std::vector<SessionRequest> sessions;
        for (uint64_t i = 0; i < batch.prompts; ++i) issue(batch.first_prompt + i, sessions);
        send_sessions(std::move(sessions));
        work();
      },
      [this](const SessionsFinished&, const FinishedSessionsPtr& sessions) {
        std::vector<SessionRequest> next;
        for (FinishedSession& session : *sessions) finished(session, next);
        send_sessions(std::move(next));
        work();
      },
  };
}

void Environment::issue_on_credit() {
  const auto group = static_cast<uint64_t>(fleet_->experiment.algo.group_size);
  std::vector<SessionRequest> sessions;
  for (; credits_ >= group; credits_ -= group) {  // whole groups: half a group would keep its credits for ever
    if (again_.empty()) {
      issue(next_prompt_++, sessions);
    } else {
      issue(again_.front(), sessions);
      again_.pop_front();
    }
  }
  send_sessions(std::move(sessions));
  work();
}

void Environment::issue(uint64_t prompt, std::vector<SessionRequest>& sessions) {
  const auto pick = std::make_shared<const envs::TaskMix::Pick>(fleet_->tasks->training(prompt));
  const envs::TaskMix::Entry& entry = fleet_->tasks->entries()[pick->entry];
  const bool interacts = entry.task->interacts();
  const envs::InteractionLimits limits{.tokens = fleet_->model.max_positions,
                                       .reply_tokens = fleet_->experiment.sampling.max_tokens};
  std::vector<int32_t> tokens;
  if (!interacts) tokens = fleet_->tokenizer.encode(pick->problem.prompt);
  const auto samples = static_cast<uint64_t>(fleet_->experiment.algo.group_size);
  for (uint64_t sample = 0; sample < samples; ++sample) {
    const uint64_t id = prompt * samples + sample;
    Episode& episode = episodes_[id];
    episode.pick = pick;
    algos::Trajectory& trajectory = episode.trajectory;
    trajectory.task = entry.name;
    trajectory.group = prompt;
    trajectory.prompt = pick->index;
    trajectory.sample = static_cast<uint32_t>(sample);
    trajectory.temperature = fleet_->experiment.sampling.temperature;
    if (interacts) {
      episode.driver = std::make_shared<InteractionDriver>(*fleet_->tasks, pick, fleet_->tokenizer, limits);
      enqueue(id, {.call = EpisodeJob::Call::begin, .pick = pick, .driver = episode.driver});
    } else {
      append_read(trajectory, tokens);
      sessions.push_back(ask(id, fleet_->experiment.sampling.max_tokens));
    }
  }
}

SessionRequest Environment::ask(uint64_t id, int64_t max_tokens) const {
  const Episode& episode = episodes_.at(id);
  return {.session = id,
          .tokens = episode.trajectory.tokens,
          .max_tokens = max_tokens,
          .random_session = random_session(*episode.pick, episode.trajectory.sample),
          .group = episode.group,
          .replica = episode.replica};
}

void Environment::send_sessions(std::vector<SessionRequest> sessions) {
  if (sessions.empty()) return;
  const OpenSessions message{sessions.size()};
  self_->send(router_, message, SessionRequestsPtr(std::make_shared<std::vector<SessionRequest>>(std::move(sessions))));
}

void Environment::finished(FinishedSession& session, std::vector<SessionRequest>& next) {
  Episode& episode = episodes_.at(session.session);
  algos::Trajectory& trajectory = episode.trajectory;
  trajectory.sampler = fleet_->experiment.samplers[session.group].name;
  trajectory.attempt = session.attempt;
  trajectory.truncated = session.finish == FinishReason::length;
  episode.group = session.group;
  episode.replica = session.replica;
  if (episode.driver || !episode.pick->problem.more.empty())
    trajectory.turns.push_back({static_cast<uint32_t>(session.records.size())});
  const std::vector<int32_t> drawn = session.records.tokens;
  append_drawn(trajectory, std::move(session.records));
  if (!session.failure.empty()) {
    if (episode.driver) enqueue(session.session, {.call = EpisodeJob::Call::drop, .driver = episode.driver});
    close(session.session, {.end = "failed", .failure = session.failure});
    return;
  }
  if (episode.driver) {
    enqueue(session.session, {.call = EpisodeJob::Call::reply,
                              .pick = episode.pick,
                              .driver = episode.driver,
                              .prompt = std::move(session.prompt),
                              .drawn = drawn});
    return;
  }
  const bool ended = session.finish == FinishReason::stop;
  const auto text = std::span(drawn).first(drawn.size() - (ended ? 1 : 0));  // without the end token
  episode.replies.push_back({fleet_->tokenizer.decode(text), ended});
  if (next_question(episode)) {
    next.push_back(ask(session.session, fleet_->experiment.sampling.max_tokens));
  } else {
    enqueue(session.session,
            {.call = EpisodeJob::Call::score, .pick = episode.pick, .replies = std::move(episode.replies)});
  }
}

bool Environment::next_question(Episode& episode) const {
  const envs::Problem* question = envs::next_question(episode.pick->problem, episode.replies);
  if (!question) return false;
  algos::Trajectory& trajectory = episode.trajectory;
  const std::vector<int32_t> tokens = fleet_->tokenizer.encode(question->prompt);
  if (!room_for_turn(trajectory.tokens.size(), tokens.size(), fleet_->model.max_positions)) {
    trajectory.truncated = true;
    return false;
  }
  append_read(trajectory, tokens);
  return true;
}

void Environment::enqueue(uint64_t id, EpisodeJob job) {
  jobs_.emplace_back(id, std::make_shared<EpisodeJob>(std::move(job)));
}

std::chrono::milliseconds Environment::limit_of(const EpisodeJob& job) const {
  if (job.call == EpisodeJob::Call::score || job.call == EpisodeJob::Call::drop) return fleet_->hooks.score_limit;
  return fleet_->hooks.call_limit.value_or(fleet_->tasks->entries()[job.pick->entry].task->longest_call());
}

void Environment::work() {
  for (size_t w = 0; w < workers_.size() && !jobs_.empty(); ++w) {
    if (!workers_[w].free) continue;
    workers_[w].free = false;
    auto [id, job] = std::move(jobs_.front());
    jobs_.pop_front();
    const bool awaited = job->call != EpisodeJob::Call::drop;
    const std::chrono::milliseconds limit = limit_of(*job);
    // One job at a time and worker, so that one that hangs takes no other with it.
    self_->request(workers_[w].handle, limit, Work{id}, std::move(job))
        .then(
            [this, w, awaited](const Worked& done, const EpisodeStepPtr& step) {
              workers_[w].free = true;
              if (awaited) stepped(done.session, *step);
              work();
            },
            [this, w, awaited, limit, id = id](caf::error& error) {
              if (awaited)
                close(id, {.end = "failed", .failure = "its task did not answer: " + self_->system().render(error)});
              // The worker is used again when it answers, which is after the job that it hangs on.
              self_->request(workers_[w].handle, kPatience * limit, Probe{})
                  .then(
                      [this, w](Probe) {
                        workers_[w].free = true;
                        work();
                      },
                      [this, w](caf::error&) { give_up(w); });
            });
  }
}

void Environment::give_up(size_t worker) {
  workers_[worker].gone = true;
  if (std::all_of(workers_.begin(), workers_.end(), [](const Worker& each) { return each.gone; }))
    throw std::runtime_error("every worker hangs in a task");
}

void Environment::stepped(uint64_t id, const EpisodeStep& step) {
  if (!step.reply_tokens) {
    close(id, step.outcome);
    return;
  }
  append_read(episodes_.at(id).trajectory, step.read);
  send_sessions({ask(id, *step.reply_tokens)});
}

void Environment::close(uint64_t id, const envs::InteractionOutcome& outcome) {
  Episode& episode = episodes_.at(id);
  algos::Trajectory& trajectory = episode.trajectory;
  const envs::Reward& reward = outcome.reward;
  if (episode.driver) {
    trajectory.ending = outcome.end;
    trajectory.format_errors = outcome.format_errors;
    trajectory.truncated = outcome.truncated;
  }
  trajectory.failure = outcome.failure;
  if (outcome.failure.empty()) {
    trajectory.reward = reward.value;
    trajectory.reward_parts = reward.parts;
    trajectory.format_error = reward.format_error || outcome.format_errors > 0;
    for (size_t k = 0; k < reward.turns.size(); ++k) trajectory.turns[k].reward = reward.turns[k];
    if (reward.turns.empty() && !trajectory.turns.empty()) trajectory.turns.back().reward = reward.value;
  }
  deliver(id);
}

void Environment::deliver(uint64_t id) {
  const auto found = episodes_.find(id);
  self_->send(learner_, EpisodeDone{id}, std::make_shared<algos::Trajectory>(std::move(found->second.trajectory)));
  episodes_.erase(found);
}

caf::behavior environment(caf::stateful_actor<Environment>* self, FleetPtr fleet, caf::actor router, caf::actor learner,
                          std::vector<caf::actor> workers) {
  install_handlers(self);
  return self->state.start(std::move(fleet), std::move(router), std::move(learner), std::move(workers));
}

}  // namespace motley::actors
