#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "app/bench.h"
#include "app/experiment_toml.h"
#include "app/input_error.h"
#include "app/scratch_folder.h"

namespace motley::app {
namespace {

namespace fs = std::filesystem;

/// Sums over the lines of a metrics.jsonl, in seconds (docs/metrics.md).
struct RunTimes {
  int64_t updates = 0;
  double measured = 0, train = 0, wait = 0, eval = 0;
};

RunTimes add_up(const fs::path& metrics) {
  std::ifstream in(metrics);
  RunTimes times;
  for (std::string line; std::getline(in, line);) {
    const nlohmann::json row = nlohmann::json::parse(line);
    const auto number = [&](const char* name) { return row.contains(name) ? row.at(name).get<double>() : 0.0; };
    times.updates = row.at("update");
    times.measured += number("time/update");
    times.train += number("time/train");
    times.wait += number("time/wait");
    times.eval += number("time/eval");
  }
  return times;
}

}  // namespace

void check_run(const BenchArguments& arguments) {
  if (arguments.experiment.empty()) throw InputError({"motley bench run"}, "no experiment", "give a TOML file");
  load_experiment({arguments.experiment, arguments.sets, ""});  // refused here, with one message
}

std::vector<BenchRow> bench_run(const BenchArguments& arguments) {
  const Experiment experiment = load_experiment({arguments.experiment, arguments.sets, ""});
  const ScratchFolder scratch;
  std::vector<std::string> words{"run", arguments.experiment};
  for (const std::string& set : arguments.sets) words.insert(words.end(), {"--set", set});
  words.insert(words.end(), {"--set", "run.dir=" + scratch.path().string(), "--json"});
  const ChildRun child = run_self(words);
  if (child.code != 0) throw std::runtime_error("the run failed");
  const nlohmann::json summary = nlohmann::json::parse(child.out);
  const RunTimes times = add_up(fs::path(summary.at("folder").get<std::string>()) / "metrics.jsonl");
  const int64_t wanted = experiment.run.updates;
  if (times.updates < wanted)
    throw std::runtime_error("the run was stopped after update " + std::to_string(times.updates) + " of " +
                             std::to_string(wanted));
  const nlohmann::json& compute = summary.at("compute");
  const double any = compute.at("any_seconds");
  const double thread_seconds = compute.at("threads").get<double>() * child.seconds;
  BenchRow row;
  row.group = "run";
  row.name = arguments.experiment;
  row.threads = compute.at("threads");
  row.seconds = spread_of({child.seconds});
  row.more = {{"updates", times.updates},
              {"wall_seconds", child.seconds},
              {"model_compute_seconds", any},
              {"outside_model_compute_share", 1.0 - any / child.seconds},
              {"busy_share", compute.at("busy_thread_seconds").get<double>() / thread_seconds},
              {"starved_share", compute.at("starved_thread_seconds").get<double>() / thread_seconds},
              {"before_first_update_seconds", child.seconds - times.measured},
              {"train_seconds", times.train},
              {"wait_seconds", times.wait},
              {"eval_seconds", times.eval},
              {"core_seconds", child.core_seconds},
              {"peak_bytes", child.peak_bytes}};
  return {row};
}

}  // namespace motley::app
