// Where samplers of other processes come in: the sockets of their sessions and weights, and what both sides are told.
#pragma once

#include <memory>
#include <string>
#include <zmq.hpp>

#include "actors/fleet.h"
#include "actors/remote/session_server.h"
#include "actors/security/addresses.h"
#include "actors/security/keys.h"
#include "actors/security/sockets.h"
#include "actors/weights/server.h"

namespace motley::actors {

/// Frames as long as records of whole vocabularies need; queues that hold whatever the sessions' credit lets in.
inline constexpr SocketLimits kFleetSockets{.frame_bytes = kMostFrameBytes, .queued_messages = 0};

class RemoteHub {
 public:
  /// Binds the ports beside that of `listen.address`, or free ones if that is 0. Throws AddressError.
  RemoteHub(const ListenOptions& listen, std::chrono::seconds lost_after);

  const ListenOptions& listen() const { return listen_; }
  bool secured() const { return listen_.keys != nullptr; }
  SessionServer& sessions() { return *sessions_; }
  WeightServer& weights() { return *weights_; }
  uint16_t fetch_port() const { return port_of(weights_->fetch_endpoint()); }
  uint16_t announce_port() const { return port_of(weights_->announce_endpoint()); }

 private:
  ListenOptions listen_;
  zmq::context_t context_;
  std::unique_ptr<Gatekeeper> gatekeeper_;  // with keys
  std::unique_ptr<SessionServer> sessions_;
  std::unique_ptr<WeightServer> weights_;
};

/// The weight plane's topic of a group: samplers with the same profile and model share it.
std::string weights_topic(const Fleet& fleet, size_t group);

}  // namespace motley::actors
