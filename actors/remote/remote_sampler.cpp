#include "actors/remote/remote_sampler.h"

#include "actors/calibration.h"
#include "actors/system.h"

namespace motley::actors {
namespace {

constexpr int kMostNotes = 20;                    // of one peer, in the run's log
constexpr size_t kMostEarly = 1000;               // frames
constexpr std::chrono::seconds kRetireLimit{30};  // for a sampler that was told to go

}  // namespace

RemoteSampler::~RemoteSampler() {
  if (fleet_) fleet_->hub->sessions().dismiss(token_, fleet_->finished ? "the run is over" : "the run has let it go");
}

caf::behavior RemoteSampler::start(FleetPtr fleet, RemotePeer peer, caf::actor plane, caf::actor router) {
  fleet_ = std::move(fleet);
  peer_ = std::move(peer);
  plane_ = std::move(plane);
  router_ = std::move(router);
  const caf::actor me(self_);
  SessionServer::Peer events{.frame =
                                 [me](FrameKind kind, std::string body) {
                                   caf::anon_send(me, PeerFrame{static_cast<uint8_t>(kind)},
                                                  std::make_shared<const std::string>(std::move(body)));
                                 },
                             .closed = [me](const std::string& cause) { caf::anon_send(me, PeerClosed{cause}); }};
  SessionServer& sessions = fleet_->hub->sessions();
  token_ =
      peer_.process ? sessions.admit(std::move(events)) : sessions.admit(std::move(events), peer_.route, peer_.welcome);
  if (peer_.process) {
    self_->monitor(peer_.process);
    self_->set_down_handler([this](const caf::down_msg& message) {
      lost("its process is gone: " + cause_text(self_->system(), message.reason));
    });
  }
  self_->send(plane_, Subscribe{peer_.replica, peer_.group, true});
  return {
      [this](TokenQuery) { return token_; },
      [this](const SwapWeights& message, const WeightsPtr& weights) { swap(message, weights); },
      [this](const Decode&, const GenerateRequestsPtr& requests) { decode(*requests); },
      [this](Calibrate) {
        calibrating_ = true;
        send(FrameKind::calibrate, requests_body(calibration_requests(*fleet_, peer_.group)));
      },
      [this](const PeerFrame& message, const FrameBodyPtr& body) { take(static_cast<FrameKind>(message.kind), *body); },
      [this](const PeerClosed& closed) { lost(closed.cause); },
      [this](const PeerLost& gone) { lost(gone.cause); },
      [this](Retire) {
        if (std::exchange(retiring_, true)) return;
        send(FrameKind::retire);
        self_->delayed_send(self_, kRetireLimit, PeerLost{"it was told to go and did not"});
      },
  };
}

void RemoteSampler::swap(const SwapWeights& message, const WeightsPtr& weights) {
  announced_[message.version] = message.digest;
  fleet_->hub->weights().offer(weights_topic(*fleet_, peer_.group), weights);
  for (const auto& [kind, body] : std::exchange(early_, {})) take(kind, body);
}

void RemoteSampler::take(FrameKind kind, const std::string& body) {
  try {
    const bool waits = !early_.empty() || (kind == FrameKind::live && too_early(parse_live(body)));
    if (!waits) return frame(kind, body);
    if (early_.size() >= kMostEarly) throw WireError("it computes with weights that do not exist");
    early_.emplace_back(kind, body);
  } catch (const WireError& error) {
    lost(std::string("what it sent is not right: ") + error.what());
  }
}

void RemoteSampler::decode(const std::vector<GenerateRequest>& requests) {
  for (const GenerateRequest& request : requests) sessions_[request.id] = request.max_new_tokens;
  send(FrameKind::decode, requests_body(requests));
}

void RemoteSampler::frame(FrameKind kind, const std::string& body) {
  switch (kind) {
    case FrameKind::report:
      return report(parse_report(body, fleet_->model.vocabulary));
    case FrameKind::calibrated: {
      const Calibration result = parse_calibrated(body);
      if (!std::exchange(calibrating_, false)) throw WireError("a calibration that nobody asked for");
      self_->send(router_, Calibrated{peer_.replica, result.tokens, result.busy_ns});
      return;
    }
    case FrameKind::live:
      return live(parse_live(body));
    case FrameKind::note:
      if (++notes_ <= kMostNotes) self_->send(router_, Note{parse_text(body)});
      return;
    case FrameKind::leaving:
      self_->send(router_, ReplicaLeft{peer_.replica});
      self_->quit();
      return;
    default:
      throw WireError("a frame of kind " + std::to_string(static_cast<int>(kind)) + ", which samplers do not send");
  }
}

void RemoteSampler::report(DecodeReport report) {
  for (const StepOutput& output : report.outputs) {
    const auto found = sessions_.find(output.id);
    if (found == sessions_.end()) throw WireError("tokens of a session that it does not have");
    found->second -= static_cast<int64_t>(output.records.size());
    if (found->second < 0) throw WireError("more tokens of a session than were asked for");
    for (const uint64_t version : output.records.versions)
      if (announced_.empty() || version > announced_.rbegin()->first)
        throw WireError("tokens of weights that do not exist yet");
    if (output.finish != FinishReason::none) sessions_.erase(found);
  }
  self_->send(router_, Decoded{peer_.replica, report.counts},
              std::make_shared<std::vector<StepOutput>>(std::move(report.outputs)));
}

void RemoteSampler::live(const LiveBody& live) {
  const auto found = announced_.find(live.version);
  // Those from before it joined, which the server had at that moment; newer ones are on their way to it.
  if (found == announced_.end()) return;
  if (found->second != live.digest)
    throw WireError("the fingerprints of its weights of version " + std::to_string(live.version) +
                    " are not the learner's");
  announced_.erase(announced_.begin(), found);
  self_->send(plane_, WeightsLive{peer_.replica, live.version});
  if (!std::exchange(serves_, true)) self_->send(router_, ReplicaReady{peer_.replica, peer_.group, peer_.instance});
}

void RemoteSampler::lost(const std::string& cause) { self_->quit(caf::make_error(caf::sec::runtime_error, cause)); }

caf::behavior remote_sampler(caf::stateful_actor<RemoteSampler>* self, FleetPtr fleet, RemotePeer peer,
                             caf::actor plane, caf::actor router) {
  install_handlers(self);
  return self->state.start(std::move(fleet), std::move(peer), std::move(plane), std::move(router));
}

}  // namespace motley::actors
