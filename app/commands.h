// One function per command of the binary; each returns the exit code. Results go to stdout, all else to stderr.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace motley::app {

struct RunArguments {
  std::string toml;  // empty with --resume: the run's own experiment
  std::vector<std::string> sets;
  std::string seed, resume, listen, key;
  std::optional<int64_t> stop_after;
  bool dry_run = false, json = false;
};
struct SamplerArguments {
  std::string join, group, device = "auto", key, model, instance;
  int64_t threads = 0, patience = 600;  // patience: seconds
};
struct WorkerArguments {
  std::string join, key;
  int64_t slots = 0, patience = 600;  // patience: seconds
};
struct LearnerArguments {
  std::string join, device = "auto", key;
  int64_t threads = 0, patience = 600;  // patience: seconds
};
struct EvaluatorArguments {
  std::string join, device = "auto", key;
  int64_t threads = 0, patience = 600;  // patience: seconds
};
struct GenerateArguments {
  std::string model, profile = "bf16", device = "cpu", prompt;
  int64_t max_tokens = 64, top_k = 0, count = 1;
  double temperature = 1.0, top_p = 1.0;
  uint64_t seed = 0;
  bool json = false;
};
struct ScoreArguments {
  std::string model, input, profile = "bf16", device = "cpu";
};
struct EvalArguments {
  std::string checkpoint, task, profile = "bf16", device = "cpu";
  std::vector<std::string> options;  // key=value, of the task
  std::vector<std::string> sets{"full"};
  std::vector<int64_t> k{1, 4};
  std::optional<int64_t> samples;  // absent: the largest k
  int64_t prompts = 128, max_tokens = 32;
  double temperature = 1.0, top_p = 1.0;
  uint64_t seed = 0;
  bool json = false;
};
struct MismatchArguments {
  std::string model, trainer, prompts, env, attribution = "classes", plot, device = "cpu";
  std::vector<std::string> samplers;
  std::optional<int64_t> sampler_tile, trainer_tile;  // over the profile's own reduction tile
  int64_t responses = 512, length = 32;
  double temperature = 1.0;
  uint64_t seed = 0;
  bool run_on = false, json = false;
};

struct BenchArguments {
  std::string what, experiment;  // experiment and sets: `run` alone
  std::vector<std::string> sets, only, shapes, profiles;
  std::vector<int64_t> threads, batches, contexts;
  std::optional<int64_t> repetitions;
  bool quick = false, json = false, rows_only = false;
};

struct AuditArguments {
  std::vector<std::string> corrections, mismatches;  // empty: all, the ladder
  std::vector<std::string> sets;                     // parameters, for those of the corrections that have them
  std::string problem;                               // FILE; then none of the next
  std::optional<std::string> policy;
  std::optional<int64_t> vocabulary, length, record_top_k, steps_since_old, problems;
  std::optional<double> baseline;
  bool no_end = false;
  int64_t batch = 128, sampled_batches = 400;
  uint64_t seed = 0;
  std::string plot;
  bool print_problem = false, json = false, table = false;
};

struct TasksArguments {
  std::string action, path;
  uint64_t seed = 0;
  int64_t count = 500;
  bool no_run = false, json = false;
};

struct SimulateArguments {
  std::string toml;
  std::optional<uint64_t> seed;
  bool json = false;
};

int run_command(const RunArguments& arguments);
int sampler_command(const SamplerArguments& arguments);
int worker_command(const WorkerArguments& arguments);
int learner_command(const LearnerArguments& arguments);
int evaluator_command(const EvaluatorArguments& arguments);
int generate_command(const GenerateArguments& arguments);
int score_command(const ScoreArguments& arguments);
int eval_command(const EvalArguments& arguments);
int mismatch_command(const MismatchArguments& arguments);
int list_command(const std::string& what, bool json);
int doctor_command(bool json);
int bench_command(const BenchArguments& arguments);
int audit_command(const AuditArguments& arguments);
int tasks_command(const TasksArguments& arguments);
int keygen_command(const std::string& file);
int simulate_command(const SimulateArguments& arguments);
int schema_command(const std::string& page);
const std::vector<std::string>& list_topics();

/// Parses the command line and runs the command: the whole of main. Exit codes: 0 done, 1 failed, 2 wrong input.
int run_command_line(int argc, char** argv);

}  // namespace motley::app
