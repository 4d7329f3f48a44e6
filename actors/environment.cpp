#include "actors/environment.h"

#include <algorithm>

#include "actors/policy/episode.h"
#include "actors/system.h"
#include "envs/episode.h"

namespace motley::actors {

constexpr int kPatience = 10;  // time limits after which a hanging reward worker is given up

caf::behavior Environment::start(FleetPtr fleet, caf::actor router, caf::actor learner,
                                 std::vector<caf::actor> rewards) {
  fleet_ = std::move(fleet);
  router_ = std::move(router);
  learner_ = std::move(learner);
  for (caf::actor& worker : rewards) workers_.push_back({std::move(worker), true});
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
      },
      [this](const SessionsFinished&, const FinishedSessionsPtr& sessions) {
        std::vector<SessionRequest> next;
        for (FinishedSession& session : *sessions) finished(session, next);
        if (!next.empty()) send_sessions(std::move(next));
        score_next();
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
  if (!sessions.empty()) send_sessions(std::move(sessions));
}

void Environment::issue(uint64_t prompt, std::vector<SessionRequest>& sessions) {
  const auto pick = std::make_shared<const envs::TaskMix::Pick>(fleet_->tasks->training(prompt));
  const std::vector<int32_t> tokens = fleet_->tokenizer.encode(pick->problem.prompt);
  const auto samples = static_cast<uint64_t>(fleet_->experiment.algo.group_size);
  for (uint64_t sample = 0; sample < samples; ++sample) {
    const uint64_t id = prompt * samples + sample;
    Episode& episode = episodes_[id];
    episode.pick = pick;
    algos::Trajectory& trajectory = episode.trajectory;
    trajectory.task = fleet_->tasks->entries()[pick->entry].name;
    trajectory.group = prompt;
    trajectory.prompt = pick->index;
    trajectory.sample = static_cast<uint32_t>(sample);
    trajectory.temperature = fleet_->experiment.sampling.temperature;
    append_read(trajectory, tokens);
    sessions.push_back({.session = id,
                        .tokens = tokens,
                        .max_tokens = fleet_->experiment.sampling.max_tokens,
                        .random_session = random_session(*pick, sample)});
  }
}

void Environment::send_sessions(std::vector<SessionRequest> sessions) {
  const OpenSessions message{sessions.size()};
  self_->send(router_, message, SessionRequestsPtr(std::make_shared<std::vector<SessionRequest>>(std::move(sessions))));
}

void Environment::finished(FinishedSession& session, std::vector<SessionRequest>& next) {
  Episode& episode = episodes_.at(session.session);
  algos::Trajectory& trajectory = episode.trajectory;
  trajectory.sampler = fleet_->experiment.samplers[session.group].name;
  trajectory.attempt = session.attempt;
  trajectory.truncated = session.finish == FinishReason::length;
  trajectory.failure = session.failure;
  const bool ended = session.finish == FinishReason::stop;
  std::span<const int32_t> reply = session.records.tokens;
  if (ended) reply = reply.first(reply.size() - 1);  // without the end token
  episode.replies.push_back({fleet_->tokenizer.decode(reply), ended});
  if (!episode.pick->problem.more.empty()) trajectory.turns.push_back({static_cast<uint32_t>(session.records.size())});
  append_drawn(trajectory, std::move(session.records));
  if (!trajectory.failure.empty()) {
    deliver(session.session);
  } else if (auto turn = next_turn(session, episode)) {
    next.push_back(std::move(*turn));
  } else {
    to_score_.push_back(session.session);
  }
}

std::optional<SessionRequest> Environment::next_turn(const FinishedSession& session, Episode& episode) const {
  const envs::Problem* question = envs::next_question(episode.pick->problem, episode.replies);
  if (!question) return std::nullopt;
  algos::Trajectory& trajectory = episode.trajectory;
  const std::vector<int32_t> tokens = fleet_->tokenizer.encode(question->prompt);
  if (!room_for_turn(trajectory.tokens.size(), tokens.size(), fleet_->model.max_positions)) {
    trajectory.truncated = true;
    return std::nullopt;
  }
  append_read(trajectory, tokens);
  return SessionRequest{.session = session.session,
                        .tokens = trajectory.tokens,
                        .max_tokens = fleet_->experiment.sampling.max_tokens,
                        .random_session = random_session(*episode.pick, trajectory.sample),
                        .group = session.group};
}

void Environment::score_next() {
  for (size_t w = 0; w < workers_.size() && !to_score_.empty(); ++w) {
    if (!workers_[w].free) continue;
    workers_[w].free = false;
    const uint64_t id = to_score_.front();
    to_score_.pop_front();
    const Episode& episode = episodes_.at(id);
    auto job = std::make_shared<ScoreJob>(ScoreJob{episode.pick, episode.replies});
    // One job at a time and worker, so that one that hangs takes no other with it.
    self_->request(workers_[w].handle, fleet_->hooks.score_limit, Score{id}, ScoreJobPtr(std::move(job)))
        .then(
            [this, w](const Scored& done, const ScoreResultPtr& result) {
              workers_[w].free = true;
              scored(done.session, *result);
              score_next();
            },
            [this, w, id](caf::error& error) {
              ScoreResult none;
              none.failure = "its reward did not answer: " + self_->system().render(error);
              scored(id, none);
              // The worker is used again when it answers, which is after the job that it hangs on.
              self_->request(workers_[w].handle, kPatience * fleet_->hooks.score_limit, Probe{})
                  .then(
                      [this, w](Probe) {
                        workers_[w].free = true;
                        score_next();
                      },
                      [this, w](caf::error&) { give_up(w); });
            });
  }
}

void Environment::give_up(size_t worker) {
  workers_[worker].gone = true;
  if (std::all_of(workers_.begin(), workers_.end(), [](const Worker& each) { return each.gone; }))
    throw std::runtime_error("every reward worker hangs");
}

void Environment::scored(uint64_t session, const ScoreResult& result) {
  algos::Trajectory& trajectory = episodes_.at(session).trajectory;
  trajectory.failure = result.failure;
  if (result.failure.empty()) {
    trajectory.reward = result.reward.value;
    trajectory.reward_parts = result.reward.parts;
    trajectory.format_error = result.reward.format_error;
    for (size_t k = 0; k < result.reward.turns.size(); ++k) trajectory.turns[k].reward = result.reward.turns[k];
  }
  deliver(session);
}

void Environment::deliver(uint64_t session) {
  const auto found = episodes_.find(session);
  self_->send(learner_, EpisodeDone{session}, std::make_shared<algos::Trajectory>(std::move(found->second.trajectory)));
  episodes_.erase(found);
}

caf::behavior environment(caf::stateful_actor<Environment>* self, FleetPtr fleet, caf::actor router, caf::actor learner,
                          std::vector<caf::actor> rewards) {
  install_handlers(self);
  return self->state.start(std::move(fleet), std::move(router), std::move(learner), std::move(rewards));
}

}  // namespace motley::actors
