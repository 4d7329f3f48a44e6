#include "actors/environment.h"

#include <algorithm>

#include "actors/policy/episode.h"
#include "actors/system.h"
#include "envs/episode.h"

namespace motley::actors {

caf::behavior Environment::start(FleetPtr fleet, caf::actor router, caf::actor learner,
                                 std::vector<caf::actor> workers) {
  fleet_ = std::move(fleet);
  router_ = std::move(router);
  learner_ = std::move(learner);
  workers_ = std::move(workers);
  places_ = WorkPlaces(workers_.size());
  for (size_t w = workers_.size(); w > 0; --w) free_.push_back(w - 1);
  self_->set_down_handler([this](const caf::down_msg& message) {
    const auto found = joined_.extract(message.source);
    if (found.empty()) return;
    const bool left = message.reason == caf::exit_reason::normal;
    lose_place(found.mapped().place, left ? "" : cause_text(self_->system(), message.reason));
    work();
  });
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
      [this](const AddWorker& message) {
        add_worker(caf::actor_cast<caf::actor>(self_->current_sender()), message.slots);
        work();
      },
      [this](WorkerCloses) {
        const auto found = joined_.find(self_->current_sender()->address());
        if (found != joined_.end()) leave_place(found->second.place);
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
  std::vector<int32_t> tokens;
  if (!interacts) tokens = fleet_->tokenizer.encode(pick->problem.prompt);
  const auto samples = static_cast<uint64_t>(fleet_->experiment.algo.group_size);
  for (uint64_t sample = 0; sample < samples; ++sample) {
    const uint64_t id = prompt * samples + sample;
    Episode& episode = episodes_[id];
    episode.pick = pick;
    episode.interacts = interacts;
    algos::Trajectory& trajectory = episode.trajectory;
    trajectory.task = entry.name;
    trajectory.group = prompt;
    trajectory.prompt = pick->index;
    trajectory.sample = static_cast<uint32_t>(sample);
    trajectory.temperature = fleet_->experiment.sampling.temperature;
    if (interacts) {
      begin(id);
    } else {
      append_read(trajectory, tokens);
      sessions.push_back(ask(id, fleet_->experiment.sampling.max_tokens));
    }
  }
}

SessionRequest Environment::ask(uint64_t id, int64_t max_tokens) {
  Episode& episode = episodes_.at(id);
  episode.drawing = true;
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
  episode.drawing = false;
  if (std::exchange(episode.anew, false)) return again(session.session);
  algos::Trajectory& trajectory = episode.trajectory;
  trajectory.sampler = fleet_->experiment.samplers[session.group].name;
  trajectory.attempt = session.attempt;
  trajectory.truncated = session.finish == FinishReason::length;
  episode.group = session.group;
  episode.replica = session.replica;
  if (episode.interacts || !episode.pick->problem.more.empty())
    trajectory.turns.push_back({static_cast<uint32_t>(session.records.size())});
  const std::vector<int32_t> drawn = session.records.tokens;
  append_drawn(trajectory, std::move(session.records));
  if (!session.failure.empty()) {
    if (episode.interacts) drop(session.session, *episode.place, episode.interaction, episode.driver);
    fail(session.session, session.failure);
    return;
  }
  if (episode.interacts) {
    enqueue(session.session,
            {.call = EpisodeJob::Call::reply,
             .interaction = episode.interaction,
             .turns = trajectory.turns.size(),
             .pick = episode.pick,
             .driver = episode.driver,
             .prompt = std::move(session.prompt),
             .drawn = drawn},
            episode.place);
    return;
  }
  const bool ended = session.finish == FinishReason::stop;
  const auto text = std::span(drawn).first(drawn.size() - (ended ? 1 : 0));  // without the end token
  episode.replies.push_back({fleet_->tokenizer.decode(text), ended});
  if (next_question(episode)) {
    next.push_back(ask(session.session, fleet_->experiment.sampling.max_tokens));
  } else {
    enqueue(session.session, {.call = EpisodeJob::Call::score,
                              .training = trajectory.group,
                              .turns = episode.replies.size(),
                              .pick = episode.pick,
                              .replies = std::move(episode.replies)});
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

void Environment::stepped(uint64_t id, const EpisodeStep& step) {
  if (!step.reply_tokens) {
    close(id, step.outcome);
    return;
  }
  Episode& episode = episodes_.at(id);
  if (episode.place && places_.closed(*episode.place)) return again(id);  // where it lives, no reply would be taken
  append_read(episode.trajectory, step.read);
  send_sessions({ask(id, *step.reply_tokens)});
}

void Environment::close(uint64_t id, const envs::InteractionOutcome& outcome) {
  Episode& episode = episodes_.at(id);
  algos::Trajectory& trajectory = episode.trajectory;
  const envs::Reward& reward = outcome.reward;
  if (episode.interacts) {
    trajectory.ending = outcome.end;
    trajectory.format_errors = outcome.format_errors;
    trajectory.truncated = outcome.truncated;
  }
  trajectory.failure = outcome.failure;
  if (outcome.failure.empty()) {
    trajectory.reward = reward.value;
    trajectory.reward_parts = reward.parts;
    trajectory.format_error = reward.format_error || outcome.format_errors > 0;
    for (size_t k = 0; k < std::min(reward.turns.size(), trajectory.turns.size()); ++k)
      trajectory.turns[k].reward = reward.turns[k];
    if (reward.turns.empty() && !trajectory.turns.empty()) trajectory.turns.back().reward = reward.value;
  }
  deliver(id);
}

void Environment::fail(uint64_t id, const std::string& why) {
  envs::InteractionOutcome failed;
  failed.end = "failed";
  failed.failure = why;
  close(id, failed);
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
