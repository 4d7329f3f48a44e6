// Machines of a test: network namespaces that are plugged into a switch (a bridge in a namespace of its own), all of
// them without names. They are made with `ip` of iproute2, as root or, without rights, in a user namespace, and are
// gone with the last process that lives in them, which the end of the test takes along.
#pragma once

#include <deque>
#include <stdexcept>
#include <string>

#include "tests/fleet/spawn.h"

namespace motley::fleet {

/// Why this machine cannot make networks: no test of the kind can run here.
class Unavailable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Machine {
 public:
  const std::string& address() const { return address_; }
  const Namespaces& namespaces() const { return namespaces_; }
  /// A TCP socket of this machine, in the test's process.
  Descriptor socket() const;

 private:
  friend class Network;
  Namespaces namespaces_;
  std::string address_;
};

class Network {
 public:
  enum class Rights { as_available, own_user_namespace };
  /// `machines`, at most 200, have 127.0.0.1 and 10.77.0.1, 10.77.0.2, ... Throws Unavailable.
  explicit Network(int machines, Rights rights = Rights::as_available);
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  const Machine& machine(int index) const { return machines_.at(static_cast<size_t>(index)); }
  /// Pulls the machine's cable out of the switch, and puts it back: packets are lost in between, connections stay.
  void unplug(int index) const;
  void plug(int index) const;
  /// Its namespaces as numbers, for a look whether they are gone.
  std::string identity() const;

 private:
  void set_port(int index, const char* state) const;
  std::deque<Machine> machines_;
  Machine switch_;
};

/// False, with "skipped: ..." and the reason on stdout, where the machine cannot make networks.
bool networks_available();

}  // namespace motley::fleet
