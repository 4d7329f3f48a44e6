#include "actors/fleet.h"

#include <algorithm>
#include <thread>

#include "actors/warmstart.h"
#include "actors/weight_history.h"
#include "kernels/parallel.h"

namespace motley::actors {
namespace {

std::shared_ptr<const envs::TaskMix> make_tasks(const Experiment& experiment) {
  std::vector<envs::TaskMix::Entry> entries;
  for (const TaskOptions& task : experiment.tasks) {
    const envs::TaskInfo* info = envs::find_task(task.env);
    if (!info) throw envs::TaskError("there is no task of the name " + task.env);
    const auto same = std::count_if(entries.begin(), entries.end(), [&](const envs::TaskMix::Entry& entry) {
      return entry.name == task.env || entry.name.starts_with(task.env + "#");
    });
    const std::string name = same == 0 ? task.env : task.env + "#" + std::to_string(same + 1);
    entries.push_back({name, info->make(task.options), task.weight});
  }
  return std::make_shared<const envs::TaskMix>(std::move(entries), experiment.seed);
}

void check_symbols(const envs::Tokenizer& tokenizer, const envs::TaskMix& tasks, const std::filesystem::path& folder) {
  const std::vector<std::string>& known = tokenizer.symbols();
  const envs::Tokenizer wanted = tasks.tokenizer();
  for (const std::string& symbol : wanted.symbols())
    if (std::find(known.begin(), known.end(), symbol) == known.end())
      throw CheckpointError(folder.string() + ": its tokenizer has no symbol \"" + symbol + "\", which the tasks need");
}

std::shared_ptr<StartingPoint> from_checkpoint(Fleet& fleet, const std::filesystem::path& folder, bool resume) {
  Checkpoint checkpoint = load_checkpoint(folder);
  check_symbols(checkpoint.tokenizer, *fleet.tasks, folder);
  fleet.model = checkpoint.config.resolved();
  fleet.tokenizer = std::move(checkpoint.tokenizer);
  auto start = std::make_shared<StartingPoint>();
  start->parameters = std::move(checkpoint.parameters);
  if (!resume) return start;
  if (!checkpoint.state || !checkpoint.optimizer)
    throw CheckpointError(folder.string() +
                          ": a model only; a run resumes from a checkpoint with its optimizer's state");
  start->state = std::move(*checkpoint.state);
  start->optimizer = std::move(checkpoint.optimizer);
  start->history = take_history(*start->optimizer, fleet.model);
  fleet.attempt = start->state.attempt;
  return start;
}

std::shared_ptr<StartingPoint> fresh(Fleet& fleet) {
  fleet.tokenizer = fleet.tasks->tokenizer();
  fleet.model = fleet.experiment.model.config;
  fleet.model.vocabulary = fleet.tokenizer.size();
  fleet.model = fleet.model.resolved();
  auto start = std::make_shared<StartingPoint>();
  start->parameters = Parameters::initialize(fleet.model, fleet.experiment.seed);
  return start;
}

}  // namespace

int64_t Fleet::threads() const {
  if (experiment.run.threads > 0) return experiment.run.threads;
  return std::max<int64_t>(1, std::thread::hardware_concurrency());
}

kernels::NumericProfile Fleet::profile(const std::string& name) const {
  SamplerGroupOptions group;
  group.profile = name;
  return experiment.group_profile(group);
}

uint64_t Fleet::replicas() const {
  uint64_t count = 0;
  for (const SamplerGroupOptions& group : experiment.samplers) count += static_cast<uint64_t>(group.replicas);
  return count;
}

std::pair<FleetPtr, StartingPointPtr> prepare(const RunRequest& request, RunObserver& observer,
                                              const StopRequest& stop) {
  auto fleet = std::make_shared<Fleet>();
  fleet->experiment = request.experiment;
  fleet->folder = request.folder;
  fleet->stop_after = request.stop_after;
  fleet->resumed_from = request.resume;
  fleet->tasks = make_tasks(request.experiment);
  StartingPointPtr start;
  if (request.resume) {
    start = from_checkpoint(*fleet, *request.resume, true);
  } else if (!request.experiment.model.path.empty()) {
    start = from_checkpoint(*fleet, find_checkpoint(request.experiment.model.path), false);
  } else {
    start = fresh(*fleet);
  }
  observer.started(start->parameters.count(), fleet->model.vocabulary, static_cast<int64_t>(start->state.version) + 1);
  const int64_t steps = request.experiment.warmstart.steps;
  if (request.resume || steps == 0) return {fleet, start};
  kernels::set_compute_threads(static_cast<int>(fleet->threads()));
  double loss = 0;
  const auto progress = [&](int64_t step, int64_t of, double value) {
    loss = value;
    observer.warm_start(step, of, value, false);
  };
  const bool cached = warm_start(fleet->experiment, *fleet->tasks, fleet->tokenizer, fleet->model, start->parameters,
                                 progress, [&] { return stop.load() != 0; });
  if (cached) observer.warm_start(steps, steps, loss, true);
  return {fleet, start};
}

}  // namespace motley::actors
