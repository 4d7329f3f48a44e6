// One stay of a worker in a run, from its welcome to its end: the socket and the calls.
#pragma once

#include <mutex>

#include "actors/remote/session_client.h"
#include "actors/remote/stay.h"
#include "actors/remote/task_calls.h"

namespace motley::actors {

class WorkerStay final : public Stay {
 public:
  WorkerStay(zmq::context_t& context, const SessionClientOptions& session, int64_t slots, TaskCalls::Parse parse,
             std::function<void(const std::string&)> say);
  ~WorkerStay() override;
  std::optional<std::string> broken() const override;
  bool left() const override;
  bool retired() const override { return false; }
  /// Its tasks are ready.
  bool served() const override;
  void leave() override { calls_->leave(); }

 private:
  void take(FrameKind kind, const std::string& body);

  const std::function<void(const std::string&)> say_;
  mutable std::mutex mutex_;
  std::optional<std::string> broken_;
  std::exception_ptr failed_;
  bool left_ = false, served_ = false;
  std::atomic_flag made_;  // the members below
  std::mutex taking_;      // a frame
  bool ended_ = false;     // no frame is taken any more
  std::unique_ptr<TaskCalls> calls_;
  std::unique_ptr<SessionClient> sessions_;
};

}  // namespace motley::actors
