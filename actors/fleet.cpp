#include "actors/fleet.h"

#include <algorithm>
#include <thread>

#include "actors/policy/learner_state.h"
#include "actors/policy/prompt_ledger.h"
#include "actors/reference_policy.h"
#include "actors/task_setup.h"
#include "actors/warmstart.h"
#include "actors/weight_history.h"
#include "kernels/parallel.h"

namespace motley::actors {
namespace {

void check_symbols(const envs::Tokenizer& tokenizer, const envs::TaskMix& tasks, const std::filesystem::path& folder) {
  const std::string lacking = tasks.lacking(tokenizer);
  if (!lacking.empty())
    throw CheckpointError(folder.string() + ": its tokenizer has no " + lacking + ", which the tasks need");
}

/// A prompt that leaves no room for a reply is the user's mistake: every problem of a finite set is looked at, and
/// enough of an endless one.
void check_prompts(const Fleet& fleet) {
  constexpr uint64_t kLookedAt = 256;
  for (const envs::TaskMix::Entry& entry : fleet.tasks->entries()) {
    if (entry.task->interacts()) continue;  // what its episodes read first, they alone know
    for (const bool held_out : {false, true}) {
      const uint64_t count = entry.task->epoch_size(held_out).value_or(kLookedAt);
      for (uint64_t i = 0; i < count; ++i) {
        const envs::Problem problem = entry.task->problem(fleet.experiment.seed, i, held_out);
        const std::vector<int32_t> tokens = fleet.tokenizer.encode(problem.prompt);
        size_t read = tokens.size();
        for (const envs::Problem& question : problem.more) read += 1 + fleet.tokenizer.encode(question.prompt).size();
        if (static_cast<int64_t>(read) < fleet.model.max_positions) continue;
        const std::string start = fleet.tokenizer.decode(std::span(tokens).first(std::min<size_t>(tokens.size(), 20)));
        throw envs::TaskError("task " + entry.name + ": " +
                              (problem.more.empty() ? "a prompt of " : "an episode that reads at least ") +
                              std::to_string(read) + " tokens leaves no room for a reply: model.max_positions is " +
                              std::to_string(fleet.model.max_positions) + "; the prompt starts with \"" + start + "\"");
      }
    }
  }
}

/// What a run goes on from must be whole before anything starts.
void check_resumable(const Fleet& fleet, StartingPoint& start, const std::filesystem::path& folder) {
  try {
    algos::Learner learner(fleet.model, start.parameters, fleet.experiment.learner_config());
    learner.optimizer().restore(*start.optimizer);
    learner.restore(learner_state(start.state));
    if (const auto watched = start.state.extra.find(kWatched); watched != start.state.extra.end())
      CollapseWatch(fleet.experiment.watch, 0).restore(watched->second);
    const auto unfinished = start.state.extra.find(kUnfinished);
    if (unfinished == start.state.extra.end()) return;
    for (const uint64_t prompt : numbers_from_text(unfinished->second)) {
      if (prompt >= start.state.next_prompt)
        throw std::runtime_error("state.json: prompt " + std::to_string(prompt) + " is unfinished, but not begun");
    }
  } catch (const std::exception& error) {
    throw CheckpointError("checkpoint " + folder.string() + " cannot be used: " + error.what());
  }
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
  check_resumable(fleet, *start, folder);
  return start;
}

std::shared_ptr<StartingPoint> fresh(Fleet& fleet) {
  fleet.tokenizer = fleet.tasks->tokenizer();
  fleet.model = fleet.experiment.model.config;
  fleet.model.vocabulary = fleet.tokenizer.size();
  fleet.model = fleet.model.resolved();
  auto start = std::make_shared<StartingPoint>();
  start->parameters = Parameters::initialize(fleet.model, fleet.experiment.start_seed());
  return start;
}

void warm_up(const Fleet& fleet, StartingPoint& start, RunObserver& observer, const StopRequest& stop) {
  const int64_t steps = fleet.experiment.warmstart.steps;
  if (steps == 0) return;
  double loss = 0;
  const auto progress = [&](int64_t step, int64_t of, double value) {
    loss = value;
    observer.warm_start(step, of, value, false);
  };
  constexpr uint64_t kWarmstart = 0x77617273746172ull;  // other problems, in another order, than the run will draw
  const auto demonstrations = make_tasks(fleet.experiment, kernels::mix(fleet.experiment.start_seed(), kWarmstart));
  const bool cached = warm_start(fleet.experiment, *demonstrations, fleet.tokenizer, fleet.model, start.parameters,
                                 progress, [&] { return stop.load() != 0; });
  if (cached) observer.warm_start(steps, steps, loss, true);
}

}  // namespace

int64_t Fleet::threads() const {
  if (experiment.run.threads > 0) return experiment.run.threads;
  return std::max<int64_t>(1, std::thread::hardware_concurrency());
}

int64_t Fleet::trainer_threads() const {
  return experiment.trainer.threads > 0 ? experiment.trainer.threads : std::max<int64_t>(1, threads() / 2);
}

int64_t Fleet::workers() const { return worker_threads(experiment.run.workers); }

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
  fleet->experiment_text = request.experiment_text;
  fleet->folder = request.folder;
  kernels::set_compute_threads(static_cast<int>(fleet->threads()), static_cast<int>(fleet->trainer_threads()));
  fleet->stop_after = request.stop_after;
  fleet->resumed_from = request.resume;
  fleet->tasks = make_tasks(request.experiment, request.experiment.seed);
  for (const envs::TaskMix::Entry& entry : fleet->tasks->entries()) entry.task->require();
  StartingPointPtr start;
  if (request.resume) {
    start = from_checkpoint(*fleet, *request.resume, true);
  } else if (!request.experiment.model.path.empty()) {
    start = from_checkpoint(*fleet, find_checkpoint(request.experiment.model.path), false);
  } else {
    start = fresh(*fleet);
  }
  fleet->next_replica = fleet->replicas();
  check_prompts(*fleet);
  observer.started(start->parameters.count(), fleet->model.vocabulary, static_cast<int64_t>(start->state.version) + 1);
  const Device device = kernels::parse_device(request.experiment.trainer.device);
  if (device != start->parameters.device()) start->parameters = start->parameters.clone(device);
  const bool with_reference = request.experiment.algo.kl != "none";
  if (request.resume) {
    if (with_reference) start->reference = resumed_reference(*fleet);
    return {fleet, start};
  }
  const bool named = !request.experiment.algo.reference.empty();
  if (with_reference && named) start->reference = fresh_reference(*fleet, start->parameters);
  warm_up(*fleet, *start, observer, stop);
  if (with_reference && !named) start->reference = fresh_reference(*fleet, start->parameters);
  return {fleet, start};
}

}  // namespace motley::actors
