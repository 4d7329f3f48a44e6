// One typed experiment: everything that a run needs to know. app/ fills it from TOML; the fleet only reads it.
// Defaults stand here and nowhere else.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "actors/policy/autoscaling.h"
#include "actors/policy/collapse_watch.h"
#include "algos/learner.h"
#include "envs/environment.h"
#include "tensor/engine.h"

namespace motley {

struct RunOptions {
  int64_t updates = 100;
  bool async = true;
  int64_t concurrency = 512;              // episodes that exist and have not been taken by the learner
  std::string keep_trajectories = "all";  // "all", "last N", "none"
  std::optional<int64_t> max_staleness;   // weight versions
  std::string routing = "capacity";       // actors/policy/placement.h
  std::string kv_on_swap = "keep";        // "keep", "recompute": KvOnSwap of all samplers
  std::string dir = "runs";
  int64_t checkpoint_every = 50;    // updates; and at the end
  int64_t threads = 0;              // compute threads of the process; 0: one per core
  int64_t workers = 0;              // threads that wait for what tasks do; 0: two per core, at least 4
  int64_t lost_after = 10;          // seconds without a sign of life after which a peer elsewhere is lost
  std::string learner = "here";     // "here", "joins": where the optimizer steps are computed
  int64_t learner_patience = 1800;  // seconds that a run waits for a learner that is to join
  int64_t hang_after = 300;         // seconds without a token after which a sampler that has work is given up
};
struct ModelOptions {
  std::string path;             // a checkpoint folder; empty: a fresh model of the sizes below
  std::optional<int64_t> seed;  // of the starting weights and the warm start; absent: the run's
  TransformerConfig config;     // vocabulary comes from the tokenizer
};
struct TaskOptions {
  std::string env;
  double weight = 1.0;
  envs::Options options;  // the env's own keys, every one resolved
};
struct WarmstartOptions {
  int64_t steps = 0;
  int64_t batch = 128;
  double lr = 3e-3;
  int64_t demonstrations = 0;  // different ones, which come again in shuffled orders; 0: every one is new
  std::string data;            // JSONL of {"prompt", "answer"}; empty: the tasks' demonstrations
  bool cache = true;           // by content hash, under dir of the run: <dir>/.warmstart/<hash>/
};
struct SamplingOptions {
  double temperature = 1.0;
  double top_p = 1.0;
  int64_t top_k = 0;
  int64_t max_tokens = 32;
  std::string record = "auto";  // "auto" (what the correction needs), "sampled", "top_k", "full"
  int64_t record_top_k = 128;
};
struct AlgoOptions {
  std::string recipe;                      // whose defaults were taken; empty: none
  std::string correction;                  // must be named when the run is asynchronous; else "grpo"
  algos::CorrectionParameters parameters;  // all of the correction's, e.g. mis.low, mis.high
  std::string advantage = "dr_grpo";
  std::string advantage_level = "episode";  // "episode", "turn": what of a group's samples is compared
  double baseline_decay = 0.9;              // advantage "reinforce": of the moving baseline, per batch
  std::string reduction = "token_mean";
  std::string denominator = "kept";  // "kept", "renormalized": whether masked tokens count in the reduction
  int64_t prompts = 32, group_size = 8;
  bool drop_equal_groups = false;  // groups of equal rewards are dropped and others drawn in their place
  int64_t drop_limit = 4;          // batches' worth of groups drawn for one update at most
  std::string overlong = "keep";   // "keep", "filter", "penalty"
  int64_t overlong_tokens = 6;     // the last tokens of sampling.max_tokens, over which the penalty grows
  int64_t minibatches = 1, epochs = 1;
  std::string kl = "none";  // "none", "k1" (in the reward), "k2", "k3" (in the loss)
  double kl_coefficient = 0.0;
  double kl_ratio_cap = 5.0;  // of the weight p / q on k2 and k3; 0: no weight
  std::string reference;      // a checkpoint; empty: the weights before the first update
  double entropy_coefficient = 0.0;
};
struct TrainerOptions {
  std::string profile = "bf16";       // fp32, bf16, fp16
  std::string device = "cpu";         // "cpu", "cuda:N", "emulated" (kernels/device.h)
  std::string kernels = "invariant";  // "invariant", "vendor": which ones it takes on a device
  double lr = 1e-4;
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.0, clip_norm = 1.0;
  std::string schedule = "constant";
  int64_t warmup_updates = 0;
  double loss_scale = 65536.0;  // fp16 only: the first scale
  int64_t loss_scale_growth = 400;
  int64_t threads = 0;                  // its share of run.threads while samplers want to compute too; 0: half of them
  bool checkpoint_activations = false;  // layers are run again in the backward pass instead of being kept
};
/// How the autoscaler has replicas of a group started and stopped (actors/provision/).
struct ProvisionOptions {
  std::string provisioner = "inproc";          // "inproc", "process", "command"
  std::vector<std::string> start, stop, list;  // of "command": words with {places} to fill in
  double call_seconds = 60.0;                  // that each of these may take
  double join_seconds = 600.0;                 // from the start until it serves; then it is stopped
};
struct AutoscalerSettings : actors::AutoscalerPlan {
  std::string host;  // by which instances elsewhere reach the run; empty: where it listens
};
struct SamplerGroupOptions {
  std::string name;
  algos::CorrectionParameters parameters;  // of the correction, where this group's differ
  std::string profile = "trainer";         // a preset, or "trainer"
  std::string device = "cpu";              // of its engines
  std::string kernels = "invariant";       // "invariant", "vendor": which ones they take on a device
  int64_t replicas = 1;
  double price_per_hour = 0.0;
  std::optional<double> capacity;                        // fixed share
  int64_t max_sequences = 256;                           // slots of each replica's engine
  bool graphs = true;                                    // of its decode steps, on a device
  std::optional<std::pair<int64_t, int64_t>> staleness;  // imposed, lock-step only
  // With an autoscaler:
  std::optional<int64_t> minimum, maximum;  // replicas; absent: `replicas`
  double start_seconds = 0.0;               // until a replica that is started serves
  std::optional<double> tokens_per_second;  // expected of a replica, all slots full, while it is not measured
  ProvisionOptions provision;
};
struct EvalOptions {
  int64_t every = 40;
  int64_t prompts = 128;                  // held-out prompts of a set
  std::vector<std::string> sets{"full"};  // of held-out problems: everything, and those that tasks name
  std::vector<int64_t> k{1, 4};
  int64_t samples = 4;  // per prompt; at least max(k)
  std::vector<std::string> profiles{"bf16"};
  std::string device = "cpu";
  double temperature = 1.0;  // never inherited from training
  double top_p = 1.0;
};

struct ProbeOptions {
  int64_t staleness_every = 0;  // updates; 0: off
  int64_t staleness_samples = 16;
  int64_t versions = 8;     // weights kept for it
  int64_t drift_every = 0;  // updates; 0: off
  int64_t drift_samples = 64;
  std::vector<std::string> drift{"grpo", "mis", "sc+mis"};
};

struct Experiment {
  std::string name = "run";
  uint64_t seed = 0;
  RunOptions run;
  ModelOptions model;
  std::vector<TaskOptions> tasks;
  WarmstartOptions warmstart;
  SamplingOptions sampling;
  AlgoOptions algo;
  TrainerOptions trainer;
  std::vector<SamplerGroupOptions> samplers;
  EvalOptions eval;
  actors::WatchOptions watch;
  AutoscalerSettings autoscaler;
  ProbeOptions probe;

  /// The seed of the starting weights and the warm start: runs that differ in their own seed alone can share a start.
  uint64_t start_seed() const { return model.seed ? static_cast<uint64_t>(*model.seed) : seed; }
  KvOnSwap kv_on_swap() const { return run.kv_on_swap == "recompute" ? KvOnSwap::recompute : KvOnSwap::keep; }
  /// The numeric profile of the trainer, and of a group ("trainer" resolved).
  kernels::NumericProfile trainer_profile() const;
  kernels::NumericProfile group_profile(const SamplerGroupOptions& group) const;
  /// Of the correction: the common ones and those of single groups ("mis.high@h100").
  algos::CorrectionParameters correction_parameters() const;
  /// Whether an autoscaler starts replicas of the group in the run's own process.
  bool grows_here(const SamplerGroupOptions& group) const {
    return autoscaler.enabled && group.provision.provisioner == "inproc";
  }
  /// What the correction asks for, and those of a drift probe.
  RecordKind needed_records() const;
  /// What is recorded per token, from sampling.record and the correction's needs.
  RecordKind record_kind() const;
  algos::LearnerConfig learner_config() const;
};

}  // namespace motley
