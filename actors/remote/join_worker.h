// A worker of a run elsewhere: makes calls into its tasks, and comes back when the connection breaks. The one entry of
// `motley worker`; no CAF type is seen here.
#pragma once

#include "actors/experiment.h"
#include "actors/remote/join.h"

namespace motley::actors {

struct WorkerRequest {
  Address address;
  std::shared_ptr<const Keys> keys;  // null: none
  int64_t slots = 0;                 // calls at once, at most kMostSlots; 0: two per core, at least 4
  std::chrono::seconds patience{600};
  std::function<Experiment(const std::string&)> parse;  // of the run's resolved TOML
};

/// Serves until the run is over or `stop` is set. Throws as run_sampler does, and what the tasks throw that cannot be
/// had here.
JoinEnd run_worker(const WorkerRequest& request, const std::function<void(const std::string&)>& say, StopRequest& stop);

}  // namespace motley::actors
