// A run and its samplers as processes: their command lines, and an experiment that is small enough for tests.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/fleet/bad_network.h"

namespace motley::fleet {

inline constexpr int64_t kGroupSize = 4;  // of small_experiment()

/// Three groups in three number formats, none of which has samplers of its own, and updates of some milliseconds: a run
/// that goes on until it is told to stop. Answers are long enough to be cut by a death.
std::string small_experiment(int replicas = 0);

/// `motley` with the words.
std::vector<std::string> motley(const std::vector<std::string>& words);

struct Joining {
  std::string at;  // HOST:PORT
  std::string group;
  std::string key{};  // file; empty: none
  int patience = 60;  // seconds
};
std::vector<std::string> sampler_words(const Joining& joining);

/// A machine for a run, others for samplers, and the key file that all of them hold.
class Site {
 public:
  static constexpr uint16_t kPort = 7000;  // of every run, and the three above
  explicit Site(int samplers, Network::Rights rights = Network::Rights::as_available);
  const TemporaryFolder& folder() const { return folder_; }
  const Network& network() const { return network_; }
  const Machine& run_machine() const { return network_.machine(0); }
  /// Machines 1, 2, ... are the samplers'.
  static int sampler_machine(int sampler) { return sampler + 1; }
  /// `motley run` with the words and `--listen`, on its machine.
  std::unique_ptr<Program> start_run(const std::string& name, const std::vector<std::string>& words) const;
  /// `at`: another address than the run's.
  std::unique_ptr<Program> start_sampler(const std::string& name, int sampler, const std::string& group,
                                         const std::string& at = "", int patience = 60) const;
  /// From the sampler's loopback to the run's machine, all four ports; the sampler joins at `127.0.0.1:7000`.
  std::unique_ptr<BadNetwork> start_relay(const std::string& name, int sampler) const;
  const std::string& address() const { return address_; }  // HOST:PORT of the run

 private:
  const TemporaryFolder folder_;
  const Network network_;
  const std::string address_;
};

/// The port of this machine that a run says it listens on.
uint16_t listening_port(Program& run, Seconds limit);

/// The number of the last update that a run's log names; 0 for none.
int64_t updates_of(const std::string& log);

/// Throws with the end of the log where the run does not get so many updates further in time.
void wait_for_updates(Program& run, int64_t further, Seconds limit);

/// SIGINT, and the exit code of a program that ends in time; Program::wait() else.
int interrupt(Program& program, Seconds limit);

}  // namespace motley::fleet
