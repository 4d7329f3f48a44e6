// A sampler's end of the sessions' sockets, in another process than the run. On a thread of its own; free of CAF.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <zmq.hpp>

#include "actors/remote/posted.h"
#include "actors/remote/wire.h"

namespace motley::actors {

struct SessionClientOptions {
  std::string endpoint, token;
  std::function<void(zmq::socket_t&)> secure{};  // called before it connects
  std::chrono::milliseconds silence{10000};      // of the run, after which it is lost
};

class SessionClient {
 public:
  /// Called on the client's thread: neither may block or call back.
  struct Events {
    std::function<void(FrameKind kind, std::string body)> frame;
    std::function<void(const std::string& cause)> closed;  // once, and nothing after it
  };
  SessionClient(zmq::context_t& context, SessionClientOptions options, Events events);
  ~SessionClient();
  /// From any thread. After it closed nothing is sent.
  void send(FrameKind kind, std::string body = {});

 private:
  using Clock = std::chrono::steady_clock;
  void serve();
  void receive();
  void take(std::string_view bytes);
  void send_now(FrameKind kind, std::string_view body);
  void close(const std::string& cause);

  SessionClientOptions options_;
  Events events_;
  zmq::socket_t socket_;
  Posted posted_;
  uint64_t sent_ = 0, received_ = 0;
  Clock::time_point heard_, spoke_;
  bool closed_ = false;
  std::atomic<bool> done_{false};
  std::thread thread_;
};

}  // namespace motley::actors
