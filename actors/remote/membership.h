// One stay of a sampler in a run, from its welcome to its end: the sockets, the engine, and what happened to them.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <zmq.hpp>

#include "actors/remote/replica_thread.h"
#include "actors/remote/session_client.h"
#include "actors/remote/stay.h"
#include "actors/weights/client.h"

namespace motley::actors {

struct MembershipOptions {
  std::string weights;  // their topic
  TransformerConfig model;
  kernels::NumericProfile profile;
  DecoderOptions decoder;
  kernels::Device device;
  SessionClientOptions session;
  std::string fetch_endpoint, announce_endpoint;
  std::function<void(zmq::socket_t&)> secure;
};

class Membership final : public Stay {
 public:
  Membership(zmq::context_t& context, const MembershipOptions& options);
  ~Membership() override;
  std::optional<std::string> broken() const override;
  bool left() const override;
  bool retired() const override;
  /// It has had weights.
  bool served() const override;
  void leave() override { replica_->leave(); }

 private:
  void take(FrameKind kind, const std::string& body);
  void breaks(const std::string& cause);

  std::mutex taking_;   // a frame
  bool ended_ = false;  // no frame is taken any more
  mutable std::mutex mutex_;
  std::optional<std::string> broken_;
  bool left_ = false, retired_ = false, served_ = false;
  // In the order in which they may begin and must end: what calls others ends before them.
  std::unique_ptr<ReplicaThread> replica_;
  std::unique_ptr<SessionClient> sessions_;
  std::unique_ptr<WeightClient> weights_;
};

}  // namespace motley::actors
