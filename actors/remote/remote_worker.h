// A worker in another process, as the run sees it: an actor that speaks a local worker's messages, several calls at
// once, and passes them on over the sessions' socket.
#pragma once

#include <unordered_map>

#include "actors/messages.h"
#include "actors/remote/hub.h"

namespace motley::actors {

struct WorkerPeer {
  caf::actor process;  // whose end is the worker's
  std::string name;    // for messages
};

class RemoteWorker {
 public:
  explicit RemoteWorker(caf::event_based_actor* self) : self_(self) {}
  ~RemoteWorker();
  /// Ends as `normal` when the worker has left, and with the cause as its error when it was lost.
  caf::behavior start(FleetPtr fleet, WorkerPeer peer, caf::actor environment, caf::actor supervisor);

 private:
  struct Open {
    uint64_t session = 0;
    EpisodeJobPtr job;
    caf::typed_response_promise<Worked, EpisodeStepPtr> promise;
    std::optional<caf::typed_response_promise<Probe>> probe;  // by who has given up waiting
  };
  caf::result<Worked, EpisodeStepPtr> work(const Work& message, const EpisodeJobPtr& job);
  caf::result<Probe> probe(const Probe& message);
  /// A frame as it came in; a WireError ends this actor.
  void take(FrameKind kind, const std::string& body);
  void ready(const std::string& body);
  void worked(const std::string& body);
  void lost(const std::string& cause);

  caf::event_based_actor* self_;
  FleetPtr fleet_;
  WorkerPeer peer_;
  caf::actor environment_, supervisor_;
  std::string token_;
  std::unordered_map<uint64_t, Open> open_;  // by the calls' numbers
  std::string unfit_;                        // why it may not make calls
  bool ready_ = false;
  int notes_ = 0;
};

caf::behavior remote_worker(caf::stateful_actor<RemoteWorker>* self, FleetPtr fleet, WorkerPeer peer,
                            caf::actor environment, caf::actor supervisor);

}  // namespace motley::actors
