// What every ZeroMQ socket of the fleet is set to: limits on what a peer may do to it, and CURVE with the key file.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <zmq.hpp>

#include "actors/security/keys.h"

namespace motley::actors {

struct SocketLimits {
  int64_t frame_bytes = int64_t{16} << 20;  // of a frame that is received; a longer one closes its peer's connection
  int queued_messages = 1000;  // each way and per peer; what comes then waits, or is dropped by PUB and ROUTER
};

/// The limits; a handshake within 10 s; heartbeats every 2 s and a peer given up after 10 s without; connecting within
/// 5 s, and again after 0.1 s to 5 s; nothing is waited for when the socket closes; IPv6 too. Before bind and connect.
void harden(zmq::socket_t& socket, const SocketLimits& limits = {});

/// CURVE before connect: only a server that holds the key file is talked to.
void secure_client(zmq::socket_t& socket, const Keys& keys);

/// Answers, for all servers of a context, whether a client that has proved to own a key may come in
/// (rfc.zeromq.org/spec/27): the key file's may. One per context, made before its servers bind and ended after them.
class Gatekeeper {
 public:
  /// Throws zmq::error_t when the context has one.
  Gatekeeper(zmq::context_t& context, const Keys& keys);
  Gatekeeper(const Gatekeeper&) = delete;
  Gatekeeper& operator=(const Gatekeeper&) = delete;
  ~Gatekeeper();

  const Keys& keys() const { return keys_; }
  uint64_t admitted() const { return admitted_; }
  /// Those that know the public key and hold another. One that does not even know it fails earlier, uncounted.
  uint64_t refused() const { return refused_; }

 private:
  void run();
  void answer();

  zmq::socket_t requests_;
  const Keys keys_;
  const std::string public_key_;  // 32 bytes
  int stop_ = -1;                 // eventfd
  std::atomic<uint64_t> admitted_{0}, refused_{0};
  std::thread thread_;
};

/// CURVE (rfc.zeromq.org/spec/26) before bind: only clients that hold the key file, which `gatekeeper`, of the socket's
/// context, checks. There is no way without one: ZeroMQ 4.3 would let in all who know the public key.
void secure_server(zmq::socket_t& socket, const Gatekeeper& gatekeeper);

}  // namespace motley::actors
