// The router owns every session from its opening to its end: it gives it to a sampler group, keeps it there, collects
// its records, and gives it to another replica when its own is lost.
#pragma once

#include <chrono>
#include <deque>
#include <set>

#include "actors/messages.h"
#include "actors/policy/placement.h"
#include "actors/policy/replica_time.h"

namespace motley::actors {

class Router {
 public:
  explicit Router(caf::event_based_actor* self) : self_(self) {}
  caf::behavior start(FleetPtr fleet, caf::actor supervisor);

 private:
  struct Session {
    SessionRequest request;
    TokenRecords records;
    std::optional<size_t> group;      // once it has been placed: it stays there while there is one of that group
    std::optional<uint64_t> replica;  // none: it waits for one
    uint32_t losses = 0;
    caf::actor owner;
  };
  struct Replica {
    size_t group = 0;
    caf::actor handle;
    MeasuredCapacity capacity;
    std::chrono::steady_clock::time_point heard;  // its last sign of life
    std::string instance;                         // of a provisioner; empty: nobody's
  };
  struct Group {
    std::set<uint64_t> expected;   // replicas on their way
    std::deque<uint64_t> waiting;  // sessions, for a slot in this group
    ReplicaTime time;
    uint64_t tokens = 0, busy_ns = 0, steps = 0, rows = 0, prefill_rows = 0, shared_rows = 0, kept_rows = 0;
  };
  using Outbox = std::map<uint64_t, std::vector<GenerateRequest>>;  // by replica

  /// The replica, if the message that is being handled is from its present life.
  Replica* sender(uint64_t replica);
  void open(const std::vector<SessionRequest>& requests);
  /// By the episode's replica, its group, or the policy; nothing if none can serve.
  std::optional<uint64_t> choose_replica(const Session& session);
  /// Puts the session's next request into the outbox, or lets it wait for a replica with a free slot.
  void place(uint64_t id, Session& session, Outbox& outbox);
  GenerateRequest request_of(uint64_t id, const Session& session) const;
  /// Gives free slots of the group to those that wait for them.
  void fill(size_t group, Outbox& outbox);
  /// Places everything that waits anew.
  void place_waiting();
  void flush(Outbox& outbox);
  void decoded(const Decoded& done, std::vector<StepOutput>& outputs);
  void finish(uint64_t id, Session& session, FinishReason reason, std::string failure);
  void send_finished();
  void joined(const ReplicaReady& ready, caf::actor handle);
  void serve(uint64_t replica);
  void calibrate_next();
  void lost(const ReplicaLost& loss);
  void left(uint64_t replica);
  /// Forgets the replica; the sessions that it had, ascending.
  std::vector<uint64_t> remove(uint64_t replica);
  /// Looks for replicas that have work and say nothing.
  void watch();
  GroupRates rates() const;
  FleetSeen seen() const;
  bool measures(size_t group) const;

  caf::event_based_actor* self_;
  FleetPtr fleet_;
  caf::actor supervisor_;
  std::vector<Group> groups_;
  std::optional<Placement> placement_;
  std::vector<double> lock_step_shares_;
  std::map<uint64_t, Replica> replicas_;
  std::unordered_map<uint64_t, Session> sessions_;
  std::deque<uint64_t> waiting_;  // sessions that no replica of any group could take
  std::vector<std::pair<caf::actor, FinishedSession>> finished_;
  std::vector<uint64_t> to_calibrate_;
  std::optional<uint64_t> calibrating_;
  bool ready_ = false;
};

caf::behavior router(caf::stateful_actor<Router>* self, FleetPtr fleet, caf::actor supervisor);

}  // namespace motley::actors
