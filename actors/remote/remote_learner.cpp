#include "actors/remote/remote_learner.h"

#include "actors/remote/setting.h"
#include "actors/system.h"

namespace motley::actors {

RemoteLearner::~RemoteLearner() {
  if (!fleet_) return;
  line_->closed("the run has let it go");
  fleet_->seat->leave(line_.get());
  fleet_->hub->sessions().dismiss(token_, fleet_->finished ? "the run is over" : "the run has let it go");
}

caf::behavior RemoteLearner::start(FleetPtr fleet, const caf::actor& process, caf::actor owner) {
  fleet_ = std::move(fleet);
  owner_ = std::move(owner);
  SessionServer& sessions = fleet_->hub->sessions();
  LinePeer admitted = admit_line(sessions, caf::actor(self_), [](FrameKind kind) {
    return kind == FrameKind::trained || kind == FrameKind::state || kind == FrameKind::part ||
           kind == FrameKind::taken || kind == FrameKind::failed;
  });
  token_ = std::move(admitted.token);
  line_ = std::move(admitted.line);
  sessions.send(token_, FrameKind::setting, setting_body(setting_of(*fleet_)));
  if (!fleet_->seat->take(line_)) lost("the run has got another learner meanwhile");
  self_->monitor(process);
  self_->set_down_handler([this](const caf::down_msg& message) {
    lost("its process is gone: " + cause_text(self_->system(), message.reason));
  });
  return {
      [this](TokenQuery) { return token_; },
      [this](const PeerFrame& message, const FrameBodyPtr& body) {
        frame(static_cast<FrameKind>(message.kind), *body);
      },
      [this](const PeerClosed& closed) { lost(closed.cause); },
      [this](const PeerLost& gone) { lost(gone.cause); },
  };
}

void RemoteLearner::frame(FrameKind kind, const std::string& /*body*/) {
  if (kind == FrameKind::leave) {
    self_->send(owner_, LearnerLeaves{});
  } else if (kind == FrameKind::leaving) {
    self_->quit();
  } else {
    lost("what it sent is not right: a frame of kind " + std::to_string(static_cast<int>(kind)) +
         ", which learners do not send");
  }
}

void RemoteLearner::lost(const std::string& cause) {
  line_->closed(cause);
  self_->quit(caf::make_error(caf::sec::runtime_error, cause));
}

caf::behavior remote_learner(caf::stateful_actor<RemoteLearner>* self, FleetPtr fleet, const caf::actor& process,
                             caf::actor owner) {
  install_handlers(self);
  return self->state.start(std::move(fleet), process, std::move(owner));
}

}  // namespace motley::actors
