// An evaluator in another process, as the run sees it: an actor that has a seat among the run's evaluators while the
// process is there. What they say to each other goes between the sessions' socket and the run's own evaluator
// (actors/remote/evaluation_wire.h).
#pragma once

#include "actors/messages.h"
#include "actors/remote/line_peer.h"

namespace motley::actors {

struct EvaluatorPeer {
  caf::actor process;  // whose end is the evaluator's
  std::string name;    // for messages
};

class RemoteEvaluator {
 public:
  explicit RemoteEvaluator(caf::event_based_actor* self) : self_(self) {}
  ~RemoteEvaluator();
  /// Ends as `normal` when the evaluator has left, and with the cause as its error when it was lost.
  caf::behavior start(FleetPtr fleet, EvaluatorPeer peer, caf::actor supervisor);

 private:
  /// A frame as it came in; a WireError ends this actor.
  void take(FrameKind kind, const std::string& body);
  void ready(const std::string& body);
  void lost(const std::string& cause);

  caf::event_based_actor* self_;
  FleetPtr fleet_;
  EvaluatorPeer peer_;
  caf::actor supervisor_;
  std::string token_;
  std::shared_ptr<PeerLine> line_;
  std::string unfit_;  // why it may not evaluate
  bool ready_ = false;
};

caf::behavior remote_evaluator(caf::stateful_actor<RemoteEvaluator>* self, FleetPtr fleet, EvaluatorPeer peer,
                               caf::actor supervisor);

}  // namespace motley::actors
