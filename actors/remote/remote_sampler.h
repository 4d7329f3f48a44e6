// A sampler in another process, as the run sees it: an actor that speaks a local sampler's messages, and passes them on
// over the sessions' socket.
#pragma once

#include <deque>
#include <map>
#include <unordered_map>

#include "actors/messages.h"
#include "actors/remote/hub.h"

namespace motley::actors {

struct RemotePeer {
  uint64_t replica = 0;
  size_t group = 0;
  std::string instance;        // of a provisioner; empty: nobody's
  caf::actor process;          // whose end is the sampler's; none: an engine that speaks frames alone
  std::string route, welcome;  // of that engine: where it said hello, and the answer
};

class RemoteSampler {
 public:
  explicit RemoteSampler(caf::event_based_actor* self) : self_(self) {}
  ~RemoteSampler();
  /// Ends as `normal` when the sampler has left, and with the cause as its error when it was lost.
  caf::behavior start(FleetPtr fleet, RemotePeer peer, caf::actor plane, caf::actor router);

 private:
  void swap(const SwapWeights& message, const WeightsPtr& weights);
  void decode(const std::vector<GenerateRequest>& requests);
  /// A frame as it came in; a WireError ends this actor.
  void take(FrameKind kind, const std::string& body);
  void frame(FrameKind kind, const std::string& body);
  void report(DecodeReport report);
  void live(const LiveBody& live);
  bool too_early(const LiveBody& live) const { return announced_.empty() || live.version > announced_.rbegin()->first; }
  void lost(const std::string& cause);
  void send(FrameKind kind, std::string body = {}) { fleet_->hub->sessions().send(token_, kind, std::move(body)); }

  caf::event_based_actor* self_;
  FleetPtr fleet_;
  RemotePeer peer_;
  caf::actor plane_, router_;
  std::string token_;
  std::map<uint64_t, uint64_t> announced_;  // digests by version, of those that may still come alive
  // From the first word of weights that the plane has not told this proxy of: their sampler may have fetched them
  // already, since they were offered for another of its kind.
  std::deque<std::pair<FrameKind, std::string>> early_;
  std::unordered_map<uint64_t, int64_t> sessions_;  // tokens that may still come, by session
  bool serves_ = false, calibrating_ = false, retiring_ = false;
  int notes_ = 0;
};

caf::behavior remote_sampler(caf::stateful_actor<RemoteSampler>* self, FleetPtr fleet, RemotePeer peer,
                             caf::actor plane, caf::actor router);

}  // namespace motley::actors
