#include "actors/remote/learner_stay.h"

namespace motley::actors {

LearnerStay::LearnerStay(zmq::context_t& context, SessionClientOptions session,
                         std::function<Experiment(const std::string&)> experiment_of,
                         std::function<void(const std::string&)> say)
    : experiment_of_(std::move(experiment_of)),
      say_(std::move(say)),
      line_([this](FrameKind kind, std::string body) { session_->send(kind, std::move(body)); },
            [this](const std::string& cause) { breaks(cause); }),
      session_(std::make_unique<SessionClient>(
          context, std::move(session),
          SessionClient::Events{.frame = [this](FrameKind kind, std::string body) { take(kind, std::move(body)); },
                                .closed =
                                    [this](const std::string& cause) {
                                      breaks(cause);
                                      line_.closed(cause);
                                    }})),
      thread_([this] { work(); }) {}

LearnerStay::~LearnerStay() {
  line_.closed("it ends");
  thread_.join();
  session_.reset();  // sends what is left
}

void LearnerStay::take(FrameKind kind, std::string body) {
  if (kind != FrameKind::attached) line_.frame(kind, std::move(body));
}

void LearnerStay::work() {
  try {
    auto [kind, body] = line_.next();
    if (kind != FrameKind::setting) throw WireError("the run begins with something else than its setting");
    const Setting setting = parse_setting(body);
    Experiment experiment;
    try {
      experiment = experiment_of_(setting.experiment);
    } catch (const std::exception&) {
      const std::lock_guard lock(mutex_);
      unfit_ = std::current_exception();
      return;
    }
    say_("trains " + experiment.name + " on " + experiment.trainer.device);
    serve_run(line_, experiment, setting.model, [this] {
      const std::lock_guard lock(mutex_);
      served_ = true;
    });
    line_.send(FrameKind::leaving);
    const std::lock_guard lock(mutex_);
    left_ = true;
  } catch (const std::exception& error) {
    breaks(error.what());
  }
}

void LearnerStay::leave() { session_->send(FrameKind::leave); }

void LearnerStay::breaks(const std::string& cause) {
  const std::lock_guard lock(mutex_);
  if (!broken_) broken_ = cause;
}

std::optional<std::string> LearnerStay::broken() const {
  const std::lock_guard lock(mutex_);
  if (unfit_) std::rethrow_exception(unfit_);
  return broken_;
}
bool LearnerStay::left() const {
  const std::lock_guard lock(mutex_);
  return left_;
}
bool LearnerStay::served() const {
  const std::lock_guard lock(mutex_);
  return served_;
}

}  // namespace motley::actors
