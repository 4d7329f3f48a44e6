// The run's end of the sessions' sockets: one ROUTER, to which every sampler in another process connects. On a thread
// of its own; free of CAF.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>
#include <zmq.hpp>

#include "actors/remote/posted.h"
#include "actors/remote/wire.h"

namespace motley::actors {

struct SessionServerOptions {
  std::string endpoint;                          // "tcp://127.0.0.1:*"
  std::function<void(zmq::socket_t&)> secure{};  // called before it is bound
  std::chrono::milliseconds silence{10000};      // after which a peer is lost
};

class SessionServer {
 public:
  /// What becomes of an admitted peer. Called on the server's thread: must neither block nor call back.
  struct Peer {
    std::function<void(FrameKind kind, std::string body)> frame;
    std::function<void(const std::string& cause)> closed;  // once, and nothing after it
  };
  /// Throws zmq::error_t.
  SessionServer(zmq::context_t& context, SessionServerOptions options);
  ~SessionServer();

  /// Nobody is called any more, and nothing is kept of any peer. Before what the peers' calls use ends.
  void stop();
  uint16_t port() const { return port_; }
  /// Whoever attaches with this token, within the time of silence, is this peer.
  std::string admit(Peer peer);
  /// The same for one that said hello on `route`: it has attached with that, and gets `welcome`.
  std::string admit(Peer peer, const std::string& route, std::string welcome);
  /// What is called with the body of a stranger's hello and the route to it; without it they are refused.
  void set_hello(std::function<void(std::string route, std::string body)> hello);
  /// The answer to a hello that is not admitted.
  void refuse_hello(const std::string& route, const std::string& reason);
  /// Kept until the peer has attached. Nothing happens for a token that is none.
  void send(const std::string& token, FrameKind kind, std::string body = {});
  /// The peer is told why, if `reason` says it; nothing of it is called any more once the next post has run.
  void dismiss(const std::string& token, const std::string& reason = {});
  /// Frames that were no frames, out of turn, or of strangers.
  uint64_t refused() const { return refused_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct State {
    Peer peer;
    std::string route;  // empty: it has not attached yet
    uint64_t received = 0, sent = 0;
    Clock::time_point heard;
    std::vector<std::pair<FrameKind, std::string>> waiting;
  };
  void serve();
  void receive();
  void take(const std::string& route, std::string_view bytes);
  void attach(const std::string& route, const Frame& frame);
  void send_to(State& state, FrameKind kind, std::string_view body);
  void refuse(const std::string& route, const std::string& reason);
  void close(const std::string& token, const std::string& cause);
  void drop_silent();

  SessionServerOptions options_;
  zmq::socket_t socket_;
  uint16_t port_ = 0;
  Posted posted_;
  std::function<void(std::string, std::string)> hello_;
  std::map<std::string, State> peers_;         // by token
  std::map<std::string, std::string> tokens_;  // by route
  std::atomic<uint64_t> refused_{0};
  std::atomic<bool> done_{false};
  std::thread thread_;
};

/// Of an address as ZeroMQ writes it; 0: it has none.
uint16_t port_of(const std::string& endpoint);

}  // namespace motley::actors
