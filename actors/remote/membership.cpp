#include "actors/remote/membership.h"

namespace motley::actors {

Membership::Membership(zmq::context_t& context, const MembershipOptions& options) {
  // Made first, so that the others can call it; it calls them only for what they have brought.
  replica_ = std::make_unique<ReplicaThread>(
      options.decoder,
      ReplicaThread::Events{
          .report = [this](const DecodeReport& report) { sessions_->send(FrameKind::report, report_body(report)); },
          .calibrated = [this](Calibration result) { sessions_->send(FrameKind::calibrated, calibrated_body(result)); },
          .live =
              [this](uint64_t version, uint64_t digest) {
                sessions_->send(FrameKind::live, live_body({version, digest}));
                const std::lock_guard lock(mutex_);
                served_ = true;
              },
          .note = [this](const std::string& text) { sessions_->send(FrameKind::note, text_body(text)); },
          .left =
              [this] {
                sessions_->send(FrameKind::leaving);
                const std::lock_guard lock(mutex_);
                left_ = true;
              },
          .failed = [this](const std::string& cause) { breaks(cause); }});
  sessions_ = std::make_unique<SessionClient>(
      context, options.session,
      SessionClient::Events{.frame = [this](FrameKind kind, const std::string& body) { take(kind, body); },
                            .closed = [this](const std::string& cause) { breaks(cause); }});
  WeightClientOptions weights;
  weights.fetch = options.fetch_endpoint;
  weights.announce = options.announce_endpoint;
  weights.kind = options.weights;
  weights.config = options.model;
  weights.profile = options.profile;
  weights.device = options.device;
  weights.secure = options.secure;
  weights_ = std::make_unique<WeightClient>(
      context, weights, [this](std::shared_ptr<const SamplerWeights> next) { replica_->set_weights(std::move(next)); },
      [this](const std::string& cause) { breaks(cause); });
}

Membership::~Membership() {
  {
    const std::lock_guard lock(taking_);
    ended_ = true;
  }
  weights_.reset();   // brings no more weights
  replica_.reset();   // says no more
  sessions_.reset();  // sends what is left
}

void Membership::take(FrameKind kind, const std::string& body) {
  const std::lock_guard taking(taking_);
  if (ended_) return;
  switch (kind) {
    case FrameKind::attached:
      return;
    case FrameKind::decode:
      return replica_->submit(parse_requests(body));
    case FrameKind::calibrate:
      return replica_->calibrate(parse_requests(body));
    case FrameKind::retire: {
      const std::lock_guard lock(mutex_);
      retired_ = true;
      return;
    }
    default:
      throw WireError("a frame of kind " + std::to_string(static_cast<int>(kind)) + ", which runs do not send");
  }
}

void Membership::breaks(const std::string& cause) {
  const std::lock_guard lock(mutex_);
  if (!broken_) broken_ = cause;
}

std::optional<std::string> Membership::broken() const {
  const std::lock_guard lock(mutex_);
  return broken_;
}
bool Membership::left() const {
  const std::lock_guard lock(mutex_);
  return left_;
}
bool Membership::retired() const {
  const std::lock_guard lock(mutex_);
  return retired_;
}
bool Membership::served() const {
  const std::lock_guard lock(mutex_);
  return served_;
}

}  // namespace motley::actors
