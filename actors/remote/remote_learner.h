// A learner in another process, as the run sees it: an actor that has the run's seat for one while the learner is
// there. What they say to each other goes between the sessions' socket and the run's trainer
// (actors/remote/remote_trainer.h).
#pragma once

#include "actors/messages.h"
#include "actors/remote/learner_seat.h"
#include "actors/remote/line_peer.h"

namespace motley::actors {

class RemoteLearner {
 public:
  explicit RemoteLearner(caf::event_based_actor* self) : self_(self) {}
  ~RemoteLearner();
  /// Ends as `normal` when the learner has left, and with the cause as its error when it was lost. `process`: whose end
  /// is the learner's. `owner`: the run's learner, which is told when this one wants to leave.
  caf::behavior start(FleetPtr fleet, const caf::actor& process, caf::actor owner);

 private:
  void frame(FrameKind kind, const std::string& body);
  void lost(const std::string& cause);

  caf::event_based_actor* self_;
  FleetPtr fleet_;
  caf::actor owner_;
  std::string token_;
  std::shared_ptr<PeerLine> line_;
};

caf::behavior remote_learner(caf::stateful_actor<RemoteLearner>* self, FleetPtr fleet, const caf::actor& process,
                             caf::actor owner);

}  // namespace motley::actors
