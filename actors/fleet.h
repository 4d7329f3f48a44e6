// What all actors of a run share, and the bulk payloads that travel by reference between them inside the process. Free
// of CAF.
#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/checkpoint.h"
#include "actors/evaluation.h"
#include "actors/experiment.h"
#include "actors/policy/batching.h"
#include "actors/run.h"

namespace motley::actors {

/// What a test may set.
struct FleetHooks {
  /// Called by a sampler before each decode step.
  std::function<void(const std::string& group, uint64_t replica, int64_t step)> before_step;
  std::chrono::milliseconds score_limit{30000};  // for one reward
};

/// Read-only while the fleet lives, but for the flag.
struct Fleet {
  Experiment experiment;
  TransformerConfig model;
  std::shared_ptr<const envs::TaskMix> tasks;
  envs::Tokenizer tokenizer;
  std::filesystem::path folder;
  std::optional<int64_t> stop_after;
  std::optional<std::filesystem::path> resumed_from;
  uint32_t attempt = 0;  // of the process: how often an asynchronous run has been resumed
  FleetHooks hooks;
  std::atomic<bool> stopping{false};  // long computations look at it

  bool lock_step() const { return !experiment.run.async; }
  int64_t threads() const;          // compute threads of the process
  int64_t trainer_threads() const;  // of those, the trainer's share
  /// A preset by name, or "trainer".
  kernels::NumericProfile profile(const std::string& name) const;
  uint64_t replicas() const;  // of all groups
};
using FleetPtr = std::shared_ptr<Fleet>;

/// What the learner starts from.
struct StartingPoint {
  Parameters parameters;
  std::optional<AdamW::State> optimizer;
  RunState state;
  /// Lock-step with imposed staleness: the weights of the versions before state.version, oldest first.
  std::vector<std::shared_ptr<const Parameters>> history;
  std::shared_ptr<const Parameters> reference;  // of a KL term; null without one
};

/// The model, the tasks and the state that a run starts from: fresh (warm start included), from a model's folder, or
/// from a checkpoint. Throws CheckpointError or envs::TaskError for bad input.
std::pair<FleetPtr, std::shared_ptr<StartingPoint>> prepare(const RunRequest& request, RunObserver& observer,
                                                            const StopRequest& stop);

/// A session as the environment asks for it.
struct SessionRequest {
  uint64_t session = 0;         // prompt number * group size + sample: unique in a run, but for turns
  std::vector<int32_t> tokens;  // everything before the first new token
  int64_t max_tokens = 0;
  uint64_t random_session = 0;                 // for RandomKey
  std::optional<size_t> group = std::nullopt;  // of an episode's first turn, which the others stay in
};
/// A session as the router gives it back.
struct FinishedSession {
  uint64_t session = 0;
  size_t group = 0;
  uint32_t attempt = 0;
  TokenRecords records;
  FinishReason finish = FinishReason::none;
  std::string failure;
};
struct ScoreJob {
  std::shared_ptr<const envs::TaskMix::Pick> pick;
  std::vector<envs::Reply> replies;  // of all turns
};
struct ScoreResult {
  envs::Reward reward;
  std::string failure;  // not empty: it threw, or was not a number
};

using StartingPointPtr = std::shared_ptr<StartingPoint>;
using SessionRequestsPtr = std::shared_ptr<const std::vector<SessionRequest>>;
using GenerateRequestsPtr = std::shared_ptr<std::vector<GenerateRequest>>;
using StepOutputsPtr = std::shared_ptr<std::vector<StepOutput>>;
using FinishedSessionsPtr = std::shared_ptr<std::vector<FinishedSession>>;
using ScoreJobPtr = std::shared_ptr<const ScoreJob>;
using ScoreResultPtr = std::shared_ptr<const ScoreResult>;
using ParametersPtr = std::shared_ptr<const Parameters>;
using WeightsPtr = std::shared_ptr<const SamplerWeights>;
using MetricsPtr = std::shared_ptr<const algos::Metrics>;
using SummaryPtr = std::shared_ptr<const RunSummary>;

/// run_experiment, with hooks.
RunSummary run_fleet(const RunRequest& request, RunObserver& observer, StopRequest& stop, const FleetHooks& hooks);

}  // namespace motley::actors
