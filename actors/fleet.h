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
#include "actors/interaction_driver.h"
#include "actors/policy/batching.h"
#include "actors/run.h"
#include "actors/task_setup.h"

namespace motley::actors {

/// What a test may set.
struct FleetHooks {
  /// Called by a sampler before each decode step.
  std::function<void(const std::string& group, uint64_t replica, int64_t step)> before_step;
  std::chrono::milliseconds score_limit{30000};                        // for one reward
  std::optional<std::chrono::milliseconds> call_limit = std::nullopt;  // of interactions; absent: their tasks' own
  std::optional<std::chrono::milliseconds> hang_limit = std::nullopt;  // absent: run.hang_after
};

class RemoteHub;
class LearnerSeat;
class EvaluatorSeats;

/// Read-only while the fleet lives, but for what is atomic.
struct Fleet {
  Experiment experiment;
  std::string experiment_text;  // its resolved TOML; empty where nobody joins
  TransformerConfig model;
  std::shared_ptr<const envs::TaskMix> tasks;
  envs::Tokenizer tokenizer;
  std::filesystem::path folder;
  std::optional<int64_t> stop_after;
  std::optional<std::filesystem::path> resumed_from;
  uint32_t attempt = 0;  // of the process: how often an asynchronous run has been resumed
  FleetHooks hooks;
  std::atomic<bool> stopping{false};  // long computations look at it
  std::atomic<bool> finished{false};  // the last update is done
  std::atomic<uint64_t> next_replica{0};
  std::vector<TaskDigest> task_digests;        // with a hub: what workers and evaluators elsewhere must have
  std::shared_ptr<RemoteHub> hub;              // where samplers of other processes come in; null: nowhere
  std::shared_ptr<LearnerSeat> seat;           // of run.learner = "joins"; null: the steps are computed here
  std::shared_ptr<EvaluatorSeats> evaluators;  // with a hub: those of other processes
  std::string join_here, join_elsewhere;  // HOST:PORT for samplers on this machine, and on others; empty without a hub

  bool lock_step() const { return !experiment.run.async; }
  int64_t threads() const;          // compute threads of the process
  int64_t trainer_threads() const;  // of those, the trainer's share
  int64_t workers() const;          // threads that wait for tasks
  /// A preset by name, or "trainer".
  kernels::NumericProfile profile(const std::string& name) const;
  uint64_t replicas() const;  // of all groups
  std::chrono::milliseconds hang_limit() const {
    return hooks.hang_limit.value_or(std::chrono::seconds(experiment.run.hang_after));
  }
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
  uint64_t random_session = 0;  // for RandomKey
  // Of an episode's turn before, where the others stay: the group always, the replica as long as it serves.
  std::optional<size_t> group = std::nullopt;
  std::optional<uint64_t> replica = std::nullopt;
};
/// A session as the router gives it back.
struct FinishedSession {
  uint64_t session = 0;
  size_t group = 0;
  uint64_t replica = 0;
  uint32_t attempt = 0;
  std::vector<int32_t> prompt;  // what the sampler read: the request's tokens
  TokenRecords records;
  FinishReason finish = FinishReason::none;
  std::string failure;
};
/// A call into a task, which may block.
struct EpisodeJob {
  enum class Call : uint8_t { score, begin, reply, drop } call = Call::score;
  uint64_t training = 0;     // score, begin: TaskMix's number of the pick
  uint64_t interaction = 0;  // begin, reply, drop: one number for each interaction that is begun
  size_t turns = 0;          // replies of the episode so far
  std::shared_ptr<const envs::TaskMix::Pick> pick{};
  std::vector<envs::Reply> replies{};           // score: of all turns
  std::shared_ptr<InteractionDriver> driver{};  // begin, reply, drop in this process; nobody else uses it meanwhile
  std::vector<int32_t> prompt{}, drawn{};       // reply: what the sampler read, and what it drew after that
};

using StartingPointPtr = std::shared_ptr<StartingPoint>;
using SessionRequestsPtr = std::shared_ptr<const std::vector<SessionRequest>>;
using GenerateRequestsPtr = std::shared_ptr<std::vector<GenerateRequest>>;
using FrameBodyPtr = std::shared_ptr<const std::string>;
using StepOutputsPtr = std::shared_ptr<std::vector<StepOutput>>;
using FinishedSessionsPtr = std::shared_ptr<std::vector<FinishedSession>>;
using EpisodeJobPtr = std::shared_ptr<const EpisodeJob>;
using EpisodeStepPtr = std::shared_ptr<const EpisodeStep>;
using ParametersPtr = std::shared_ptr<const Parameters>;
using WeightsPtr = std::shared_ptr<const SamplerWeights>;
using MetricsPtr = std::shared_ptr<const algos::Metrics>;
using SummaryPtr = std::shared_ptr<const RunSummary>;

/// run_experiment, with hooks.
RunSummary run_fleet(const RunRequest& request, RunObserver& observer, StopRequest& stop, const FleetHooks& hooks);

}  // namespace motley::actors
