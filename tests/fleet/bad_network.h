// The relay (relay/relay.h) as tests use it: a process on a machine, and its commands.
#pragma once

#include <string>
#include <vector>

#include "tests/fleet/program.h"

namespace motley::fleet {

class BadNetwork {
 public:
  /// Listens on `ports` (0: any) of `address`, and forwards to `to_ports` of `to`, from this machine or `machine`.
  BadNetwork(const TemporaryFolder& folder, const std::string& name, const std::string& address,
             const std::vector<uint16_t>& ports, const std::string& to, const std::vector<uint16_t>& to_ports,
             const Machine* machine = nullptr);
  uint16_t port(size_t index) const { return ports_.at(index); }
  /// A command of relay.h; the answer, when it has been done. Throws for "error: ...".
  std::string command(const std::string& line);

 private:
  std::string next_line();
  Program program_;
  int lines_ = 0;
  std::vector<uint16_t> ports_;
};

}  // namespace motley::fleet
