// Where a run's time and money go: the time/ and cost/ numbers of every update, and the closing table. Free of actors.
#pragma once

#include <chrono>

#include "actors/run.h"
#include "kernels/parallel.h"

namespace motley::actors {

/// Since the start of the fleet, by sampler group.
struct GroupCounters {
  std::vector<uint64_t> tokens, busy_ns, steps, rows, prefill_rows, shared_rows, kept_rows;
  std::vector<uint64_t> replicas, replica_ns;  // that are there, and for how long, summed over those that ever were
  int64_t at_ns = 0;                           // when this was so, by the steady clock
};

class RunReport {
 public:
  explicit RunReport(const Experiment& experiment);
  enum class Phase : uint8_t { other, wait, train, eval };
  /// From now on time counts for `phase`.
  void enter(Phase phase);
  /// Adds an update's time/ and cost/ numbers to its metrics, and its groups to the closing table.
  void close_update(algos::Metrics& metrics, const GroupCounters& counters);
  RunSummary summary() const;

 private:
  using Clock = std::chrono::steady_clock;
  void add_compute(algos::Metrics& metrics, double seconds);
  /// For which the group's replicas are paid, until `now`.
  static double replica_seconds(const GroupCounters& counters, size_t group, Clock::time_point now);
  void add_group(size_t group, algos::Metrics& metrics, const GroupCounters& counters, double seconds);

  const Experiment& experiment_;
  Clock::time_point start_, entered_;
  Phase phase_ = Phase::other;
  double spent_[4] = {};
  GroupCounters last_;
  kernels::ComputeUse last_use_ = kernels::compute_use();
  struct Totals {
    double samples = 0, kl = 0, outside = 0, staleness = 0;
    double replica_seconds = 0;  // until the last update was closed
  };
  std::vector<Totals> totals_;
  int64_t updates_ = 0;  // with samples
};

}  // namespace motley::actors
