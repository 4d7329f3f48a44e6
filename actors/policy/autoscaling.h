// When a fleet of samplers grows and shrinks, and by which groups. Pure: time is an argument, nothing is random.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

namespace motley::actors {

/// Thresholds and patience. Tolerance and the five minutes until a shrink are those of Kubernetes' horizontal pod
/// autoscaler.
struct AutoscalerOptions {
  double hunger = 0.10;         // share of its time that the learner may wait for samples, in [0, 1)
  double busy_idle = 0.15;      // the fleet is busy while less than this share of its capacity is idle
  double spare_idle = 0.35;     // and has too much while more than this is
  double target_idle = 0.20;    // what a shrink aims at, between the two
  double grow_after = 60.0;     // seconds for which the fleet must have been too small
  double shrink_after = 300.0;  // and too large
  double growth_limit = 2.0;    // of the capacity, at one decision; above 1
  double budget_per_hour = std::numeric_limits<double>::infinity();
};

/// One group as it is now. What serves, starts or leaves is paid for and counts against the maximum.
struct ScalingGroup {
  int64_t minimum = 0, maximum = 0;  // replicas
  double price_per_hour = 0.0;       // of a replica, from its start on
  double start_seconds = 0.0;        // until a replica that is started serves
  double capacity = 0.0;             // tokens per second of a replica with all slots full; expected or measured
  int64_t slots = 1;                 // of a replica's engine
  int64_t serving = 0, starting = 0, leaving = 0;
  bool available = true;  // false: none can be had now
};

/// What was seen in a span that ends now.
struct FleetLoad {
  double since = 0.0;    // when the span began; seconds
  double used = 0.0;     // tokens per second that the samplers drew
  double hunger = 0.0;   // share of the time of whole updates in which the learner waited for samples, in [0, 1]
  int64_t sessions = 0;  // that want a slot, now
  int64_t queued = 0;    // of these, without one
};

/// By group: replicas to start (above 0), or to stop (below 0; those that are starting go first).
using ScalingDecision = std::vector<int64_t>;

class Autoscaler {
 public:
  explicit Autoscaler(const AutoscalerOptions& options) : options_(options) {}

  /// `now`, in seconds, never falls from call to call. At once: a group above its maximum and a fleet above its budget
  /// stop replicas, a group below its minimum starts some as the budget allows, and a fleet of nothing starts one. All
  /// else waits until nothing starts, and looks only at a load whose span began after the last change.
  ///
  /// Too small: the learner waits for more than `hunger` of its time, and the fleet is busy or sessions are queued
  /// (more replicas would get work). It grows to capacity / (1 - hunger seen), with which the learner would not wait,
  /// at most by growth_limit. Too large: more than spare_idle is idle and nothing is queued. It shrinks to used / (1 -
  /// target_idle), and never to nothing.
  ScalingDecision decide(double now, std::span<const ScalingGroup> groups, const FleetLoad& load);
  /// Why the last decision changed something.
  enum class Reason : uint8_t { bounds, nothing_serves, too_small, too_large };
  Reason reason() const { return reason_; }

 private:
  /// Whether `condition` has held for `patience`; `since` is its memory.
  static bool patient(std::optional<double>& since, bool condition, double now, double patience);
  void judge(double now, std::span<const ScalingGroup> groups, const FleetLoad& load, ScalingDecision& change);

  AutoscalerOptions options_;
  double changed_ = -std::numeric_limits<double>::infinity();
  std::optional<double> small_since_, large_since_;
  int64_t most_sessions_ = 0;  // since large_since_
  Reason reason_ = Reason::bounds;
};

/// What a file says of an autoscaler: an experiment's, or a simulated fleet's.
struct AutoscalerPlan {
  bool enabled = false;
  double every_seconds = 30.0;
  std::optional<double> budget_per_hour;
  AutoscalerOptions options;  // but its budget
  AutoscalerOptions resolved() const {
    AutoscalerOptions all = options;
    if (budget_per_hour) all.budget_per_hour = *budget_per_hour;
    return all;
  }
};

/// Adds to `change` the replicas that bring the capacity from `capacity` to `wanted`, the cheapest useful capacity
/// first: at each step the group with the lowest price per token that is still missing; of equals the one that starts
/// sooner. Stays within maxima and the budget per hour.
void grow(std::span<const ScalingGroup> groups, double capacity, double wanted, double budget_per_hour,
          ScalingDecision& change);
/// Takes from `change` the replicas that neither `wanted` (tokens per second) nor `wanted_slots` needs, the dearest per
/// token first. Stays within minima. What serves counts.
void shrink(std::span<const ScalingGroup> groups, double wanted, double wanted_slots, ScalingDecision& change);

}  // namespace motley::actors
