// The environment: turns prompt numbers into episodes, and keeps as many in existence as the learner has given credit
// for. An episode is a session at the router for each of its turns, then a score, then a trajectory at the
// learner.
#pragma once

#include <deque>
#include <unordered_map>

#include "actors/messages.h"

namespace motley::actors {

class Environment {
 public:
  explicit Environment(caf::event_based_actor* self) : self_(self) {}
  caf::behavior start(FleetPtr fleet, caf::actor router, caf::actor learner, std::vector<caf::actor> rewards);

 private:
  struct Episode {
    std::shared_ptr<const envs::TaskMix::Pick> pick;
    algos::Trajectory trajectory;
    std::vector<envs::Reply> replies;
  };
  struct Worker {
    caf::actor handle;
    bool free = true, gone = false;
  };
  /// Opens sessions for all samples of a prompt.
  void issue(uint64_t prompt, std::vector<SessionRequest>& sessions);
  void issue_on_credit();
  void send_sessions(std::vector<SessionRequest> sessions);
  /// Takes a reply, and asks for the next one or for the score.
  void finished(FinishedSession& session, std::vector<SessionRequest>& next);
  /// The session of the next turn; nothing when the episode is over.
  std::optional<SessionRequest> next_turn(const FinishedSession& session, Episode& episode) const;
  void score_next();
  void give_up(size_t worker);
  void scored(uint64_t session, const ScoreResult& result);
  void deliver(uint64_t session);

  caf::event_based_actor* self_;
  FleetPtr fleet_;
  caf::actor router_, learner_;
  std::vector<Worker> workers_;
  uint64_t next_prompt_ = 0, credits_ = 0;
  std::deque<uint64_t> again_;
  std::unordered_map<uint64_t, Episode> episodes_;
  std::deque<uint64_t> to_score_;
};

caf::behavior environment(caf::stateful_actor<Environment>* self, FleetPtr fleet, caf::actor router, caf::actor learner,
                          std::vector<caf::actor> rewards);

}  // namespace motley::actors
