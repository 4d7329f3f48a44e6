// The environment: turns prompt numbers into episodes, and keeps as many in existence as the learner has given credit
// for. An episode is a session at the router for each of its turns, what its task does between them (an interaction)
// or a score at its end, and then a trajectory at the learner. Calls into tasks are made by the workers of this process
// and by those that joined the run; an interaction lives where it began, and begins anew where that place is lost.
#pragma once

#include <deque>
#include <unordered_map>

#include "actors/messages.h"
#include "actors/policy/work_places.h"

namespace motley::actors {

class Environment {
 public:
  explicit Environment(caf::event_based_actor* self) : self_(self) {}
  caf::behavior start(FleetPtr fleet, caf::actor router, caf::actor learner, std::vector<caf::actor> workers);

 private:
  struct Episode {
    std::shared_ptr<const envs::TaskMix::Pick> pick;
    algos::Trajectory trajectory;
    std::vector<envs::Reply> replies;  // of an episode that is no interaction
    bool interacts = false;
    std::optional<WorkPlaces::Place> place;     // where the interaction lives
    uint64_t interaction = 0;                   // its number there
    std::shared_ptr<InteractionDriver> driver;  // of one that lives here
    bool drawing = false;                       // a session of it is at the router
    bool anew = false;                          // what that brings is of an interaction that is lost
    int losses = 0;                             // of workers, in calls or interactions of it
    std::string cause;                          // of the last
    std::optional<size_t> group;                // of samplers, after the first turn
    std::optional<uint64_t> replica;            // that served the last turn
  };
  struct Joined {  // a worker of another process
    caf::actor handle;
    WorkPlaces::Place place = WorkPlaces::kHere;
  };
  struct Call {
    uint64_t episode = 0;
    std::shared_ptr<EpisodeJob> job;
    bool awaited = true;                     // false: nobody waits for what it comes to
    std::optional<WorkPlaces::Place> place;  // where it is made; none: it waits
    size_t worker = 0;                       // of this process
  };
  /// Begins all samples of a prompt: opens their sessions, or lets workers begin their interactions.
  void issue(uint64_t prompt, std::vector<SessionRequest>& sessions);
  void issue_on_credit();
  void send_sessions(std::vector<SessionRequest> sessions);
  /// The session of an episode's next turn: a reply to all of its tokens.
  SessionRequest ask(uint64_t id, int64_t max_tokens);
  /// Takes a reply, and asks for the next one or for what the task makes of it.
  void finished(FinishedSession& session, std::vector<SessionRequest>& next);
  /// Reads the next question; false when the episode is over.
  bool next_question(Episode& episode) const;
  /// `place`: the only one that can make it; none: any can.
  void enqueue(uint64_t id, EpisodeJob job, std::optional<WorkPlaces::Place> place = std::nullopt);
  /// Has an interaction begin, for the first time or anew.
  void begin(uint64_t id);
  /// The interaction there ends unfinished.
  void drop(uint64_t id, WorkPlaces::Place place, uint64_t interaction, std::shared_ptr<InteractionDriver> driver);
  void work();
  void make(uint64_t number, WorkPlaces::Place place);
  std::chrono::milliseconds limit_of(const EpisodeJob& job) const;
  /// Of a call that is over: who made it is free.
  void answered(uint64_t number, const EpisodeStep& step);
  /// A call that hangs fails its episode; who makes it is used again when it answers, which is after that call.
  void unanswered(uint64_t number, std::chrono::milliseconds limit, const caf::error& error);
  void answered_late(uint64_t number);
  void give_up(uint64_t number);
  caf::actor handle_of(WorkPlaces::Place place) const;
  /// What a worker's call came to.
  void stepped(uint64_t id, const EpisodeStep& step);
  void add_worker(const caf::actor& handle, uint64_t slots);
  /// No call goes there any more, and what lives there without one begins anew elsewhere.
  void leave_place(WorkPlaces::Place place);
  /// The same, and its calls are made elsewhere as well. `cause`: of the loss; empty: it left.
  void lose_place(WorkPlaces::Place place, const std::string& cause);
  /// Then it has failed.
  bool lost_too_often(uint64_t id);
  /// An interaction that is lost begins anew, once no session of it is out.
  void again(uint64_t id);
  void close(uint64_t id, const envs::InteractionOutcome& outcome);
  void fail(uint64_t id, const std::string& why);
  void deliver(uint64_t id);

  caf::event_based_actor* self_;
  FleetPtr fleet_;
  caf::actor router_, learner_;
  std::vector<caf::actor> workers_;  // of this process
  std::vector<size_t> free_;         // of those
  size_t given_up_ = 0;              // of those
  WorkPlaces places_{0};
  std::map<caf::actor_addr, Joined> joined_;
  std::map<uint64_t, Call> calls_;  // that wait or are made
  uint64_t next_call_ = 0, next_interaction_ = 0;
  uint64_t next_prompt_ = 0, credits_ = 0;
  std::deque<uint64_t> again_;
  std::unordered_map<uint64_t, Episode> episodes_;  // by prompt number * group size + sample
};

caf::behavior environment(caf::stateful_actor<Environment>* self, FleetPtr fleet, caf::actor router, caf::actor learner,
                          std::vector<caf::actor> workers);

}  // namespace motley::actors
