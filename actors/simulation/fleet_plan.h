// What a simulation is told: a fleet, the episodes that it serves and the learner that it feeds. Defaults stand here
// and nowhere else.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "actors/policy/autoscaling.h"

namespace motley::simulation {

/// A whole number of at least 1, drawn anew each time: log-normal with this mean, or fixed for a spread of 0.
struct Length {
  double mean = 1.0;
  double spread = 0.0;  // standard deviation / mean
};

struct RunPlan {
  int64_t updates = 100;        // measured
  int64_t warmup_updates = 10;  // before them: the fleet fills up
  int64_t concurrency = 1344;
  std::string routing = "capacity";
  std::optional<int64_t> max_staleness;
};
struct LearnerPlan {
  int64_t prompts = 128, group_size = 8;
  double train_seconds = 0.0;    // of an update, from the batch to the new weights
  double publish_seconds = 0.0;  // from there until the samplers have them
  double close_seconds = 0.0;    // from there, meanwhile, until the learner looks for the next batch
};
struct EpisodePlan {
  Length turns{1.0, 0.0};
  Length reply{1000.0, 1.0};     // tokens drawn in a turn
  int64_t max_tokens = 1000000;  // of a reply
  std::vector<int64_t> replies;  // not empty: measured replies, drawn from instead of `reply`
  double prompt_tokens = 0.0;    // computed before the first turn
  double turn_tokens = 0.0;      // read between two turns
  double turn_seconds = 0.0;     // of the environment, between two turns
  double score_seconds = 0.0;
};
struct GroupPlan {
  std::string name;
  int64_t replicas = 1;                             // at the start
  std::optional<int64_t> minimum, maximum;          // for the autoscaler; absent: replicas
  int64_t max_sequences = 256;                      // slots of a replica
  double tokens_per_second = 1000.0;                // of a replica, all slots full
  std::optional<double> alone_tokens_per_second;    // of one sequence alone; absent: tokens_per_second / slots
  std::optional<double> prefill_tokens_per_second;  // absent: prompts cost nothing
  double speed_spread = 0.0;                        // standard deviation of replicas' speeds / mean
  double price_per_hour = 0.0;                      // of a replica
  std::optional<double> capacity;                   // fixed share of the episodes
  double failures_per_hour = 0.0;                   // of a replica
  double start_seconds = 0.0;                       // until a replica that is started serves
  double swap_seconds = 0.0;                        // in which a replica stands still for new weights
};
struct ComparePlan {
  std::vector<std::string> homogeneous;  // groups; each is simulated alone
  std::optional<int64_t> replicas;       // of each; absent: what has the fleet's capacity
};

struct FleetPlan {
  std::string name = "fleet";
  uint64_t seed = 0;
  RunPlan run;
  LearnerPlan learner;
  EpisodePlan episodes;
  std::vector<GroupPlan> samplers;
  actors::AutoscalerPlan autoscaler;
  ComparePlan compare;
};

}  // namespace motley::simulation
