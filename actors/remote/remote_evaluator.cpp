#include "actors/remote/remote_evaluator.h"

#include "actors/remote/evaluator_seats.h"
#include "actors/remote/setting.h"
#include "actors/remote/work_wire.h"
#include "actors/system.h"

namespace motley::actors {
namespace {

constexpr std::chrono::seconds kUnfitEvaluatorLimit{5};  // to read why

}  // namespace

RemoteEvaluator::~RemoteEvaluator() {
  if (!fleet_) return;
  line_->closed("the run has let it go");
  fleet_->evaluators->leave(line_.get());
  fleet_->hub->sessions().dismiss(token_, fleet_->finished ? "the run is over" : "the run has let it go");
}

caf::behavior RemoteEvaluator::start(FleetPtr fleet, EvaluatorPeer peer, caf::actor supervisor) {
  fleet_ = std::move(fleet);
  peer_ = std::move(peer);
  supervisor_ = std::move(supervisor);
  SessionServer& sessions = fleet_->hub->sessions();
  LinePeer admitted = admit_line(sessions, caf::actor(self_), [](FrameKind kind) {
    return kind == FrameKind::evaluated || kind == FrameKind::taken || kind == FrameKind::failed;
  });
  token_ = std::move(admitted.token);
  line_ = std::move(admitted.line);
  sessions.send(token_, FrameKind::setting, setting_body(setting_of(*fleet_)));
  self_->monitor(peer_.process);
  self_->set_down_handler([this](const caf::down_msg& message) {
    lost("its process is gone: " + cause_text(self_->system(), message.reason));
  });
  return {
      [this](TokenQuery) { return token_; },
      [this](const PeerFrame& message, const FrameBodyPtr& body) { take(static_cast<FrameKind>(message.kind), *body); },
      [this](const PeerClosed& closed) { lost(closed.cause); },
      [this](const PeerLost& gone) { lost(gone.cause); },
  };
}

void RemoteEvaluator::take(FrameKind kind, const std::string& body) {
  try {
    if (kind == FrameKind::ready) return ready(body);
    if (kind != FrameKind::leaving)
      throw WireError("a frame of kind " + std::to_string(static_cast<int>(kind)) + ", which evaluators do not send");
    line_->closed("it left");
    self_->quit();
  } catch (const WireError& error) {
    lost(std::string("what it sent is not right: ") + error.what());
  }
}

void RemoteEvaluator::ready(const std::string& body) {
  const ReadyBody said = parse_ready(body);
  if (std::exchange(ready_, true)) throw WireError("it is ready a second time");
  unfit_ = other_tasks(fleet_->task_digests, said.tasks);
  if (!unfit_.empty()) {
    // Its process ends when it has read why; one that does not is given up.
    fleet_->hub->sessions().send(token_, FrameKind::unfit, text_body(unfit_));
    self_->delayed_send(self_, kUnfitEvaluatorLimit, PeerLost{unfit_});
    return;
  }
  fleet_->evaluators->add({line_, peer_.name});
  self_->send(supervisor_, Note{peer_.name + " has the run's tasks: evaluations go to the first that does"});
}

void RemoteEvaluator::lost(const std::string& cause) {
  line_->closed(cause);
  self_->quit(caf::make_error(caf::sec::runtime_error, unfit_.empty() ? cause : unfit_));
}

caf::behavior remote_evaluator(caf::stateful_actor<RemoteEvaluator>* self, FleetPtr fleet, EvaluatorPeer peer,
                               caf::actor supervisor) {
  install_handlers(self);
  return self->state.start(std::move(fleet), std::move(peer), std::move(supervisor));
}

}  // namespace motley::actors
