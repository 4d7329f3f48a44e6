// One stay of a sampler in a run, from its welcome to its end: the sockets, the engine, and what happened to them.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <zmq.hpp>

#include "actors/remote/join.h"
#include "actors/remote/replica_thread.h"
#include "actors/remote/session_client.h"
#include "actors/weights/client.h"

namespace motley::actors {

struct MembershipOptions {
  std::string token, weights;  // weights: their topic
  TransformerConfig model;
  kernels::NumericProfile profile;
  DecoderOptions decoder;
  kernels::Device device;
  std::string session_endpoint, fetch_endpoint, announce_endpoint;
  std::chrono::milliseconds silence{10000};
  std::function<void(zmq::socket_t&)> secure;
};

class Membership {
 public:
  Membership(zmq::context_t& context, const MembershipOptions& options);
  ~Membership();
  /// The first thing that ended it; empty while it goes on.
  std::optional<std::string> broken() const;
  /// It has reported everything.
  bool left() const;
  /// The run wants it to go.
  bool retired() const;
  /// It has had weights.
  bool served() const;
  void leave() { replica_->leave(); }

 private:
  void take(FrameKind kind, const std::string& body);
  void breaks(const std::string& cause);

  mutable std::mutex mutex_;
  std::optional<std::string> broken_;
  bool left_ = false, retired_ = false, served_ = false;
  // In the order in which they may begin and must end: what calls others ends before them.
  std::unique_ptr<ReplicaThread> replica_;
  std::unique_ptr<SessionClient> sessions_;
  std::unique_ptr<WeightClient> weights_;
};

}  // namespace motley::actors
