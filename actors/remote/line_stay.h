// One stay of a learner or an evaluator in a run elsewhere: the session's socket, and a thread that computes.
#pragma once

#include <mutex>
#include <thread>

#include "actors/remote/peer_line.h"
#include "actors/remote/session_client.h"
#include "actors/remote/setting.h"
#include "actors/remote/stay.h"

namespace motley::actors {

/// What the stay is for.
struct LineRole {
  /// Until the run releases it. `served`: called when it has been of use. Throws LineClosed when the run is gone,
  /// WireError for what no run sends, and JoinRefused, which ends the stay for good.
  using Serve = std::function<void(PeerLine& line, const std::function<void()>& served)>;
  /// What serves a run of this setting. What it throws ends the stay for good.
  std::function<Serve(const Setting& setting)> prepare;
  bool asks_to_leave = false;   // and serves until the run releases it; false: it goes at once
  bool fails_for_good = false;  // whatever else `Serve` throws ends the stay for good, too
};

class LineStay final : public Stay {
 public:
  LineStay(zmq::context_t& context, SessionClientOptions session, LineRole role);
  /// Waits for what is under way.
  ~LineStay() override;
  std::optional<std::string> broken() const override;
  bool left() const override;
  bool retired() const override { return false; }
  bool served() const override;
  void leave() override;

 private:
  void take(FrameKind kind, std::string body);
  void work();
  void breaks(const std::string& cause);
  void ends_for_good();

  LineRole role_;
  mutable std::mutex mutex_;
  std::optional<std::string> broken_;
  std::exception_ptr unfit_;
  bool left_ = false, served_ = false;
  PeerLine line_;
  // What calls others ends before them.
  std::unique_ptr<SessionClient> session_;
  std::thread thread_;
};

}  // namespace motley::actors
