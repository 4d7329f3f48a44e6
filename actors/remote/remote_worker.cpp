#include "actors/remote/remote_worker.h"

#include "actors/remote/setting.h"
#include "actors/remote/work_wire.h"
#include "actors/system.h"

namespace motley::actors {
namespace {

constexpr int kMostWorkerNotes = 20;  // of one peer, in the run's log

constexpr std::chrono::seconds kUnfitLimit{5};

}  // namespace

RemoteWorker::~RemoteWorker() {
  if (fleet_) fleet_->hub->sessions().dismiss(token_, fleet_->finished ? "the run is over" : "the run has let it go");
}

caf::behavior RemoteWorker::start(FleetPtr fleet, WorkerPeer peer, caf::actor environment, caf::actor supervisor) {
  fleet_ = std::move(fleet);
  peer_ = std::move(peer);
  environment_ = std::move(environment);
  supervisor_ = std::move(supervisor);
  const caf::actor me(self_);
  SessionServer& sessions = fleet_->hub->sessions();
  token_ = sessions.admit({.frame =
                               [me](FrameKind kind, std::string body) {
                                 caf::anon_send(me, PeerFrame{static_cast<uint8_t>(kind)},
                                                std::make_shared<const std::string>(std::move(body)));
                               },
                           .closed = [me](const std::string& cause) { caf::anon_send(me, PeerClosed{cause}); }});
  sessions.send(token_, FrameKind::setting, setting_body(setting_of(*fleet_)));
  self_->monitor(peer_.process);
  self_->set_down_handler([this](const caf::down_msg& message) {
    lost("its process is gone: " + cause_text(self_->system(), message.reason));
  });
  return {
      [this](TokenQuery) { return token_; },
      [this](const Work& message, const EpisodeJobPtr& job) { return work(message, job); },
      [this](const Probe& message) { return probe(message); },
      [this](const PeerFrame& message, const FrameBodyPtr& body) { take(static_cast<FrameKind>(message.kind), *body); },
      [this](const PeerClosed& closed) { lost(closed.cause); },
      [this](const PeerLost& gone) { lost(gone.cause); },
  };
}

caf::result<Worked, EpisodeStepPtr> RemoteWorker::work(const Work& message, const EpisodeJobPtr& job) {
  Open open{.session = message.session, .job = job, .promise = {}, .probe = {}};
  open.promise = self_->make_response_promise<Worked, EpisodeStepPtr>();
  const auto promise = open.promise;
  open_[message.number] = std::move(open);
  fleet_->hub->sessions().send(token_, FrameKind::work, work_body(message.number, *job));
  return promise;
}

caf::result<Probe> RemoteWorker::probe(const Probe& message) {
  const auto found = open_.find(message.number);
  if (found == open_.end()) return message;  // its answer is on its way
  auto promise = self_->make_response_promise<Probe>();
  found->second.probe = promise;
  return promise;
}

void RemoteWorker::take(FrameKind kind, const std::string& body) {
  try {
    switch (kind) {
      case FrameKind::ready:
        return ready(body);
      case FrameKind::worked:
        return worked(body);
      case FrameKind::note:
        if (++notes_ <= kMostWorkerNotes) self_->send(supervisor_, Note{peer_.name + ": " + parse_text(body)});
        return;
      case FrameKind::closing:
        self_->send(environment_, WorkerCloses{});
        return;
      case FrameKind::leaving:
        self_->quit();
        return;
      default:
        throw WireError("a frame of kind " + std::to_string(static_cast<int>(kind)) + ", which workers do not send");
    }
  } catch (const WireError& error) {
    lost(std::string("what it sent is not right: ") + error.what());
  }
}

void RemoteWorker::ready(const std::string& body) {
  const ReadyBody said = parse_ready(body);
  if (std::exchange(ready_, true)) throw WireError("it is ready a second time");
  const std::string other = other_tasks(fleet_->task_digests, said.tasks);
  if (!other.empty()) {
    // Its process ends when it has read why; one that does not is given up.
    unfit_ = other;
    fleet_->hub->sessions().send(token_, FrameKind::unfit, text_body(other));
    self_->delayed_send(self_, kUnfitLimit, PeerLost{other});
    return;
  }
  self_->send(environment_, AddWorker{said.slots});
}

void RemoteWorker::worked(const std::string& body) {
  auto [number, step] = parse_worked(body);
  const auto found = open_.find(number);
  if (found == open_.end()) throw WireError("the answer to a call that it was not asked for");
  const EpisodeJob& job = *found->second.job;
  const StepLimits limits{.vocabulary = fleet_->model.vocabulary,
                          .positions = fleet_->model.max_positions,
                          .context = static_cast<int64_t>(job.prompt.size() + job.drawn.size()),
                          .replies = job.turns};
  if (job.call != EpisodeJob::Call::drop) {
    if (const std::string wrong = wrong_step(step, limits); !wrong.empty()) throw WireError(wrong);
    if (job.call == EpisodeJob::Call::score && step.reply_tokens) throw WireError("a score that asks for a reply");
  }
  Open open = std::move(found->second);
  open_.erase(found);
  open.promise.deliver(Worked{open.session}, EpisodeStepPtr(std::make_shared<EpisodeStep>(std::move(step))));
  if (open.probe) open.probe->deliver(Probe{number});
}

void RemoteWorker::lost(const std::string& cause) {
  self_->quit(caf::make_error(caf::sec::runtime_error, unfit_.empty() ? cause : unfit_));
}

caf::behavior remote_worker(caf::stateful_actor<RemoteWorker>* self, FleetPtr fleet, WorkerPeer peer,
                            caf::actor environment, caf::actor supervisor) {
  install_handlers(self);
  return self->state.start(std::move(fleet), std::move(peer), std::move(environment), std::move(supervisor));
}

}  // namespace motley::actors
