// A whole run: from a typed experiment to a trained policy, with the fleet of actors in between. The one entry that
// app/ calls; no CAF type is seen here.
#pragma once

#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/experiment.h"
#include "actors/security/addresses.h"
#include "actors/security/keys.h"
#include "algos/learner.h"

namespace motley::actors {

/// Where samplers of other processes may join.
struct ListenOptions {
  Address address;                   // port 0: any
  std::shared_ptr<const Keys> keys;  // null: loopback addresses only
  std::string key_file;              // that they are from
};

struct RunRequest {
  Experiment experiment;
  std::filesystem::path folder;                 // exists; checkpoints/ and trajectories/ are made below it
  std::optional<std::filesystem::path> resume;  // a checkpoint folder of the same experiment
  std::optional<int64_t> stop_after;            // stop with a checkpoint after this update, as if asked to
  std::optional<ListenOptions> listen;          // absent: nobody joins
  std::string experiment_text = {};             // its resolved TOML, for those who join
};

/// One row of the closing table.
struct GroupSummary {
  std::string name, profile, hardware;  // hardware: what the preset stands for; empty for plain formats
  bool emulated = false;                // rates and cost are those of the emulation, not of the hardware
  double share = 0;                     // of the samples trained on
  double kl = 0, outside = 0, staleness = 0;
  double tokens_per_second = 0, cost = 0;
  double cost_per_million_tokens = 0;  // drawn; 0 without any
};
struct RunSummary {
  int64_t updates = 0;               // finished, those before a resume included
  bool interrupted = false;          // stopped before the last update, with a checkpoint
  std::filesystem::path checkpoint;  // the last one written
  std::string alarm;                 // not empty: the alarm that stopped the run before its last update, and why
  std::vector<GroupSummary> groups;
  double seconds = 0;
  double cost_per_update = 0;  // of the updates since the start or the resume
};

/// Called from one thread at a time.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  virtual void started(int64_t parameters, int64_t vocabulary, int64_t first_update) = 0;
  virtual void warm_start(int64_t step, int64_t steps, double loss, bool cached) = 0;
  /// Once per update, in order, update 0 (evaluation of the starting weights) included unless resumed.
  virtual void update(int64_t update, const algos::Metrics& metrics) = 0;
  virtual void message(const std::string& text) = 0;
};

/// The run failed: the first cause, with the actor that it came from.
class RunError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// 0: go on; 1: stop cleanly with a checkpoint.
using StopRequest = std::atomic<int>;

/// Runs to the end, or to a stop. Throws RunError; CheckpointError or envs::TaskError for bad input found on the way.
RunSummary run_experiment(const RunRequest& request, RunObserver& observer, StopRequest& stop);

}  // namespace motley::actors
