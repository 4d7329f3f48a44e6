// A run and its samplers as processes: their command lines, and an experiment that is small enough for tests.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tests/fleet/program.h"

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

/// The number of the last update that a run's log names; 0 for none.
int64_t updates_of(const std::string& log);

/// Throws with the end of the log where the run does not get so many updates further in time.
void wait_for_updates(Program& run, int64_t further, Seconds limit);

/// The port that a run says it listens on.
uint16_t listening_port(Program& run, Seconds limit);

}  // namespace motley::fleet
