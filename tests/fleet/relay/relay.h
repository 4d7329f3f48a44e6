// A TCP relay whose connections can be disturbed while it runs: the bad network that the kernel here cannot make
// (no netem). It listens on some ports of one address and forwards each to the port of its place at another.
#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "tests/fleet/relay/link.h"

namespace motley::fleet {

struct RelayOptions {
  std::string listen = "127.0.0.1", to = "127.0.0.1";  // IPv4
  std::vector<uint16_t> ports;                         // to listen on; 0: any
  std::vector<uint16_t> to_ports;                      // as many
};

class Relay {
 public:
  /// Throws std::runtime_error with the address and the reason.
  explicit Relay(const RelayOptions& options);
  const std::vector<uint16_t>& ports() const { return ports_; }
  /// Serves until standard input ends. A line of it is a command, answered by a line on stdout:
  ///   delay MS | rate BYTES_PER_SECOND (0: no limit) | stall | drop | forward   conditions from now on
  ///   reset | abandon client|server   what is done once to all open connections (Link)
  ///   clear                           forward, without delay and limit
  ///   count                           "links N up BYTES down BYTES": open, and forwarded since the start
  /// Each may be followed by a direction, up (client to server) or down, and by "port I" for one of the ports, from 0.
  /// Bytes that were held by a stall go on afterwards; a direction that has lost bytes stays silent for the life of its
  /// connection, since no network delivers what follows a hole.
  void run();

 private:
  struct Scope {
    bool up = true, down = true;
    int port = -1;  // -1: all
  };
  std::string command(const std::string& line);
  std::string set_conditions(const std::string& name, double value, const Scope& scope);
  std::string act(const std::string& name, const std::string& side, const Scope& scope);
  void accept(size_t port);
  /// Polls once; false at the end of the input.
  bool poll_once();
  bool take_input();

  RelayOptions options_;
  std::vector<uint16_t> ports_;
  std::vector<Descriptor> listeners_;
  std::vector<PortConditions> conditions_;
  std::list<Link> links_;
  std::array<uint64_t, 2> forwarded_{};
  std::string input_;
};

}  // namespace motley::fleet
