// A fleet on machines of its own that is disturbed by a schedule (chaos_schedule.h), and the audit of what it did.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "tests/fleet/accounts.h"

namespace motley::fleet {

struct ChaosOptions {
  uint64_t seed = 1;
  double seconds = 600;
  int samplers = 4;
  int lost_after = 5;  // seconds; run.lost_after
};

struct ChaosResult {
  Accounts accounts;                // of the run at its end
  int restarts = 0;                 // of the run
  int64_t joins = 0, losses = 0;    // in the logs of all its lives
  double longest_reconnection = 0;  // seconds from a resumed run's start to the first sampler in it
  int64_t descriptors_grown = 0;    // of the run's last life, from its first full fleet to its last
  int64_t bytes_grown = 0;
  std::vector<std::string> faults;  // beside those of the accounts
};

/// Says on `out` what happens, as it happens. Throws where nothing can be said of the run at all.
ChaosResult run_chaos(const ChaosOptions& options, std::ostream& out);

}  // namespace motley::fleet
