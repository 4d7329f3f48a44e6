#include "actors/remote/worker_stay.h"

#include "actors/remote/join.h"

namespace motley::actors {

WorkerStay::WorkerStay(zmq::context_t& context, const SessionClientOptions& session, int64_t slots,
                       TaskCalls::Parse parse, std::function<void(const std::string&)> say)
    : say_(std::move(say)) {
  calls_ = std::make_unique<TaskCalls>(
      slots, std::move(parse),
      TaskCalls::Events{.send = [this](FrameKind kind, std::string body) { sessions_->send(kind, std::move(body)); },
                        .ready =
                            [this, slots](const std::string& tasks) {
                              say_("makes " + std::to_string(slots) + " calls at once into " + tasks);
                              const std::lock_guard lock(mutex_);
                              served_ = true;
                            },
                        .left =
                            [this] {
                              const std::lock_guard lock(mutex_);
                              left_ = true;
                            },
                        .failed =
                            [this](std::exception_ptr cause) {
                              const std::lock_guard lock(mutex_);
                              if (!failed_) failed_ = std::move(cause);
                            }});
  sessions_ = std::make_unique<SessionClient>(
      context, session,
      SessionClient::Events{.frame = [this](FrameKind kind, const std::string& body) { take(kind, body); },
                            .closed =
                                [this](const std::string& cause) {
                                  const std::lock_guard lock(mutex_);
                                  if (!broken_) broken_ = cause;
                                }});
  made_.test_and_set();
  made_.notify_all();
}

WorkerStay::~WorkerStay() {
  {
    const std::lock_guard lock(taking_);
    ended_ = true;
  }
  calls_.reset();     // says no more
  sessions_.reset();  // sends what is left
}

void WorkerStay::take(FrameKind kind, const std::string& body) {
  made_.wait(false);  // what a frame sets going sends others
  const std::lock_guard taking(taking_);
  if (ended_) return;
  switch (kind) {
    case FrameKind::attached:
      return;
    case FrameKind::setting:
      return calls_->set(parse_setting(body));
    case FrameKind::work:
      return calls_->work(body);
    case FrameKind::unfit: {
      const std::lock_guard lock(mutex_);
      failed_ = std::make_exception_ptr(JoinRefused("the run refuses this worker: " + parse_text(body)));
      return;
    }
    default:
      throw WireError("a frame of kind " + std::to_string(static_cast<int>(kind)) +
                      ", which runs do not send a worker");
  }
}

std::optional<std::string> WorkerStay::broken() const {
  const std::lock_guard lock(mutex_);
  if (failed_) std::rethrow_exception(failed_);
  return broken_;
}
bool WorkerStay::left() const {
  const std::lock_guard lock(mutex_);
  return left_;
}
bool WorkerStay::served() const {
  const std::lock_guard lock(mutex_);
  return served_;
}

}  // namespace motley::actors
