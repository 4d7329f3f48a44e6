// The environment: turns prompt numbers into episodes, and keeps as many in existence as the learner has given credit
// for. An episode is a session at the router for each of its turns, what its task does between them (an interaction)
// or a score at its end, and then a trajectory at the learner.
#pragma once

#include <deque>
#include <unordered_map>

#include "actors/messages.h"

namespace motley::actors {

class Environment {
 public:
  explicit Environment(caf::event_based_actor* self) : self_(self) {}
  caf::behavior start(FleetPtr fleet, caf::actor router, caf::actor learner, std::vector<caf::actor> workers);

 private:
  struct Episode {
    std::shared_ptr<const envs::TaskMix::Pick> pick;
    algos::Trajectory trajectory;
    std::vector<envs::Reply> replies;           // of an episode that is no interaction
    std::shared_ptr<InteractionDriver> driver;  // of one that is
    std::optional<size_t> group;                // of samplers, after the first turn
    std::optional<uint64_t> replica;            // that served the last turn
  };
  struct Worker {
    caf::actor handle;
    bool free = true, gone = false;
  };
  /// Begins all samples of a prompt: opens their sessions, or lets workers begin their interactions.
  void issue(uint64_t prompt, std::vector<SessionRequest>& sessions);
  void issue_on_credit();
  void send_sessions(std::vector<SessionRequest> sessions);
  /// The session of an episode's next turn: a reply to all of its tokens.
  SessionRequest ask(uint64_t id, int64_t max_tokens) const;
  /// Takes a reply, and asks for the next one or for what the task makes of it.
  void finished(FinishedSession& session, std::vector<SessionRequest>& next);
  /// Reads the next question; false when the episode is over.
  bool next_question(Episode& episode) const;
  void enqueue(uint64_t id, EpisodeJob job);
  void work();
  std::chrono::milliseconds limit_of(const EpisodeJob& job) const;
  void give_up(size_t worker);
  /// What a worker's call came to.
  void stepped(uint64_t id, const EpisodeStep& step);
  void close(uint64_t id, const envs::InteractionOutcome& outcome);
  void deliver(uint64_t id);

  caf::event_based_actor* self_;
  FleetPtr fleet_;
  caf::actor router_, learner_;
  std::vector<Worker> workers_;
  uint64_t next_prompt_ = 0, credits_ = 0;
  std::deque<uint64_t> again_;
  std::unordered_map<uint64_t, Episode> episodes_;  // by prompt number * group size + sample
  std::deque<std::pair<uint64_t, EpisodeJobPtr>> jobs_;
};

caf::behavior environment(caf::stateful_actor<Environment>* self, FleetPtr fleet, caf::actor router, caf::actor learner,
                          std::vector<caf::actor> workers);

}  // namespace motley::actors
