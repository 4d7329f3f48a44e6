// Requests of many threads to an environment that another program serves, over one ZeroMQ socket.
// docs/external-environments.md is the protocol.
#pragma once

#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "actors/external/wire.h"
#include "actors/wake_event.h"

namespace motley::actors {

struct ExternalLimits {
  std::chrono::duration<double> answer{20};  // a request, from the call to its answer
  std::chrono::duration<double> away{10};    // no server: at the start, or after it was lost
};

/// One thread owns the socket, which no two threads may use; callers hand it their requests and wait. A request is sent
/// again after the connection was lost, and after the server sent what is no message, since every request may be
/// repeated; at most kAttempts times.
class ExternalClient {
 public:
  static constexpr int kAttempts = 3;
  /// Throws ExternalError for an address that ZeroMQ does not take. Waits for nothing.
  ExternalClient(std::string address, ExternalLimits limits);
  ExternalClient(const ExternalClient&) = delete;
  ExternalClient& operator=(const ExternalClient&) = delete;
  /// What still waits fails.
  ~ExternalClient();

  /// Blocks until the server has answered, which it has limits().answer for. Throws ExternalError: no server for as
  /// long as one may be away, no answer in time, or `error` in the answer. Thread-safe.
  ExternalAnswer ask(const ExternalRequest& request);
  /// Sends what needs no answer, if there is a server. Thread-safe.
  void tell(const ExternalRequest& request);

  const std::string& address() const { return address_; }
  const ExternalLimits& limits() const { return limits_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Call {
    uint64_t id = 0;
    std::string bytes;
    bool wants_answer = true, sent = false;
    int attempts = 0;
    Clock::time_point deadline;
    std::promise<ExternalAnswer> answer;
  };
  class Connection;

  std::shared_ptr<Call> hand_over(const ExternalRequest& request, bool wants_answer);
  void run();
  void run_until_closed();
  void take_new_calls();
  void connect();
  void lose(const std::string& cause);
  void follow_connection();
  void send_waiting();
  void receive();
  void expire();
  int milliseconds_to_wait() const;
  void fail(const std::shared_ptr<Call>& call, const std::string& reason) const;
  void fail_all(const std::string& reason);

  const std::string address_;
  const ExternalLimits limits_;
  WakeEvent wake_;

  std::mutex mutex_;  // of what callers share with the thread: the three that follow
  std::vector<std::shared_ptr<Call>> new_calls_;
  uint64_t last_id_ = 0;
  bool closing_ = false;

  // The thread's own.
  std::unique_ptr<Connection> connection_;  // null: waits to connect again
  Clock::time_point away_since_, connect_at_;
  std::string trouble_;  // what last went wrong
  uint64_t last_taken_ = 0;
  std::map<uint64_t, std::shared_ptr<Call>> calls_;  // by id
  std::thread thread_;
};

}  // namespace motley::actors
