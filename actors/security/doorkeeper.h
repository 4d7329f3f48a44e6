// Ends connections to CAF's port that nobody speaks through. CAF 0.17 waits for ever for a stranger's handshake, and
// with TLS its network thread polls without rest while it waits (its issue 1060).
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>

namespace motley::actors {

/// A peer of the fleet has sent its half of the handshake within a round trip or two, and then a heartbeat every two
/// seconds.
struct DoorLimits {
  std::chrono::milliseconds handshake{5000};  // until which it has to have come
  std::chrono::milliseconds silence{10000};   // in which this much has to come, ever again:
  uint64_t silence_bytes = 64;
  size_t strangers = 256;  // connections whose handshake is not done: beyond it the oldest are ended
};

/// What comes from a peer of the fleet before its first message, at least: CAF's handshake, and TLS's with a
/// certificate.
inline constexpr uint64_t kPlainHandshakeBytes = 48, kTlsHandshakeBytes = 800;

/// Watches the ports of CAF's connections. These are found among the process's descriptors, since CAF shows none, and
/// ended by shutdown(2), which CAF takes for the peer's own end. Thread-safe.
class Doorkeeper {
 public:
  using Clock = std::chrono::steady_clock;
  explicit Doorkeeper(const DoorLimits& limits) : limits_(limits) {}

  /// A port that this process listens on, or that it connects to, on any host. `bytes`: of a handshake at least.
  void watch_listening(uint16_t port, uint64_t bytes);
  void watch_dialed(uint16_t port, uint64_t bytes);
  /// Looks at every connection once; `now` never goes back. Returns how many it has ended.
  size_t look(Clock::time_point now);

 private:
  struct Connection {
    Clock::time_point since;    // seen first
    Clock::time_point window;   // when the time began in which silence_bytes must come
    uint64_t window_bytes = 0;  // that had come by then
    bool greeted = false, ended = false;
  };
  /// What a handshake takes, of a socket of a watched port; 0: of none.
  uint64_t handshake_bytes(int fd) const;
  bool overdue(Connection& connection, uint64_t bytes, uint64_t handshake, Clock::time_point now) const;

  const DoorLimits limits_;
  std::mutex mutex_;
  std::map<uint16_t, uint64_t> listening_, dialed_;  // ports, and the bytes of a handshake
  std::map<ino_t, Connection> connections_;          // by the socket's inode: descriptors' numbers are used again
};

/// Room for strangers beside what a run needs: raises this process's limit on open files to `files` if the system
/// allows.
void raise_descriptor_limit(uint64_t files);

}  // namespace motley::actors
