// What happens to a fleet, and when: a list that follows from a seed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace motley::fleet {

struct Disturbance {
  enum class Kind : uint8_t {
    kill,     // SIGKILL; started again after `seconds`
    leave,    // SIGINT; started again after `seconds`
    stop,     // SIGSTOP; SIGCONT after `seconds`
    unplug,   // the cable, for `seconds`
    relay,    // `command` to the sampler's relay; "clear" after `seconds`
    restart,  // SIGKILL to the run, which is resumed after `seconds`
  } kind = Kind::kill;
  double at = 0;    // seconds from the start
  int sampler = 0;  // none for a restart
  double seconds = 0;
  std::string command{};
};

/// Sorted by time. A sampler has one at a time, and a rest after it; a run is restarted every minute or two.
/// `lost_after`: some silences are shorter than this, some longer.
std::vector<Disturbance> chaos_schedule(uint64_t seed, double seconds, int samplers, double lost_after);

/// One line: "12.3 s  sampler 2: stop for 4.5 s".
std::string describe(const Disturbance& disturbance);

}  // namespace motley::fleet
