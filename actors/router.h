// The router owns every session from its opening to its end: it gives it to a sampler group, keeps it there, collects
// its records, and gives it to another replica when its own is lost.
#pragma once

#include "actors/messages.h"
#include "actors/policy/placement.h"

namespace motley::actors {

class Router {
 public:
  explicit Router(caf::event_based_actor* self) : self_(self) {}
  caf::behavior start(FleetPtr fleet, caf::actor supervisor);

 private:
  struct Session {
    SessionRequest request;
    TokenRecords records;
    std::optional<size_t> group;      // once it has been placed: it stays there
    std::optional<uint64_t> replica;  // none: it waits for one
    uint32_t losses = 0;
    caf::actor owner;
  };
  struct Replica {
    size_t group = 0;
    caf::actor handle;
    MeasuredCapacity capacity;
  };
  struct Group {
    uint64_t tokens = 0, busy_ns = 0, steps = 0, rows = 0, prefill_rows = 0, shared_rows = 0;
  };
  using Outbox = std::map<uint64_t, std::vector<GenerateRequest>>;  // by replica

  void open(const std::vector<SessionRequest>& requests);
  /// By the episode's replica, its group, or the policy; nothing if none can serve.
  std::optional<uint64_t> choose_replica(const Session& session);
  /// Puts the session's next request into the outbox, or lets it wait for a replica.
  void place(uint64_t id, Session& session, Outbox& outbox);
  void flush(Outbox& outbox);
  void decoded(const Decoded& done, std::vector<StepOutput>& outputs);
  void finish(uint64_t id, Session& session, FinishReason reason, std::string failure);
  void send_finished();
  void joined(const ReplicaReady& ready, caf::actor handle);
  void serve(uint64_t replica);
  void calibrate_next();
  void lost(uint64_t replica, const std::string& cause);
  bool measures(size_t group) const;

  caf::event_based_actor* self_;
  FleetPtr fleet_;
  caf::actor supervisor_;
  std::vector<Group> groups_;
  std::optional<Placement> placement_;
  std::vector<double> lock_step_shares_;
  std::map<uint64_t, Replica> replicas_;
  std::unordered_map<uint64_t, Session> sessions_;
  std::vector<uint64_t> waiting_;  // sessions without a replica
  std::vector<std::pair<caf::actor, FinishedSession>> finished_;
  std::vector<uint64_t> to_calibrate_;
  std::optional<uint64_t> calibrating_;
  bool ready_ = false;
};

caf::behavior router(caf::stateful_actor<Router>* self, FleetPtr fleet, caf::actor supervisor);

}  // namespace motley::actors
