// One connection through the relay: a client's socket, the server's, and what is on its way between them.
#pragma once

#include <poll.h>

#include <array>

#include "tests/fleet/relay/traffic.h"
#include "tests/fleet/spawn.h"

namespace motley::fleet {

enum Side : size_t { kClient = 0, kServer = 1 };
/// By the side that the bytes come from: [kClient] is "up", [kServer] "down".
using PortConditions = std::array<Conditions, 2>;

class Link {
 public:
  /// `server` may still be connecting.
  Link(size_t port, Descriptor client, Descriptor server);
  size_t port() const { return port_; }
  /// What to poll a side's socket for now: -1 as its descriptor where there is nothing to learn.
  pollfd interest(size_t side, const PortConditions& conditions, RelayClock::time_point now) const;
  /// When bytes are due next; max() where none wait for a time.
  RelayClock::time_point wakes(const PortConditions& conditions) const;
  /// After a poll. `forwarded` counts bytes by the side that they came from.
  void serve(size_t side, short events, PortConditions& conditions, std::array<uint64_t, 2>& forwarded);
  /// Both peers see a connection reset.
  void reset();
  /// This side's peer sees the end of the connection; the other's sees nothing: it sends into the void.
  void abandon(size_t side);
  /// Nothing more can happen.
  bool over() const { return !sockets_[kClient].open() && !sockets_[kServer].open(); }

 private:
  void read_from(size_t side, Conditions& conditions);
  void write_to(size_t side, Conditions& conditions, uint64_t& forwarded);
  void broken(size_t side, bool passed_on);
  void close_when_done();

  size_t port_;
  std::array<Descriptor, 2> sockets_;
  std::array<Traffic, 2> from_;           // by the side that the bytes come from
  std::array<bool, 2> ended_{}, told_{};  // its peer has finished; the other side has been told so
  std::array<bool, 2> lossy_{};           // bytes from this side were lost: no others may follow them
  bool abandoned_ = false;
};

}  // namespace motley::fleet
