// The run's end of a line to a learner or an evaluator elsewhere, between the sessions' socket and the peer's proxy.
#pragma once

#include <caf/all.hpp>

#include "actors/remote/hub.h"
#include "actors/remote/peer_line.h"

namespace motley::actors {

struct LinePeer {
  std::string token;  // that it attaches with
  std::shared_ptr<PeerLine> line;
};

/// Admits one: frames that are `of_line` go to the line, all others to its proxy as PeerFrame, which hears of the
/// connection's end as PeerClosed, and of a cause to hang up as PeerLost.
LinePeer admit_line(SessionServer& sessions, const caf::actor& proxy, bool (*of_line)(FrameKind kind));

}  // namespace motley::actors
