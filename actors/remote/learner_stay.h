// One stay of a learner in a run elsewhere: the session's socket, and a thread that computes.
#pragma once

#include <mutex>
#include <thread>

#include "actors/remote/learner_service.h"
#include "actors/remote/session_client.h"
#include "actors/remote/setting.h"
#include "actors/remote/stay.h"

namespace motley::actors {

class LearnerStay final : public Stay {
 public:
  /// `experiment_of`: the experiment as this process computes it; what it throws ends the stay for good.
  LearnerStay(zmq::context_t& context, SessionClientOptions session,
              std::function<Experiment(const std::string& text)> experiment_of,
              std::function<void(const std::string&)> say);
  /// Waits for the step that is under way.
  ~LearnerStay() override;
  std::optional<std::string> broken() const override;
  bool left() const override;
  bool retired() const override { return false; }
  bool served() const override;
  void leave() override;

 private:
  void take(FrameKind kind, std::string body);
  void work();
  void breaks(const std::string& cause);

  std::function<Experiment(const std::string&)> experiment_of_;
  std::function<void(const std::string&)> say_;
  mutable std::mutex mutex_;
  std::optional<std::string> broken_;
  std::exception_ptr unfit_;
  bool left_ = false, served_ = false;
  LearnerLine line_;
  // What calls others ends before them.
  std::unique_ptr<SessionClient> session_;
  std::thread thread_;
};

}  // namespace motley::actors
