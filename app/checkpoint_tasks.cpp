#include "app/checkpoint_tasks.h"

#include <algorithm>

#include "app/experiment_toml.h"
#include "app/input_error.h"
#include "app/run_folder.h"

namespace motley::app {
namespace {

std::optional<Experiment> experiment_of(const std::string& checkpoint) {
  const auto folder = enclosing_run_folder(checkpoint);
  if (!folder) return std::nullopt;
  return load_experiment({.file = *folder / "experiment.toml", .sets = {}, .seed = {}});
}

/// The options that the checkpoint's run gave this task, where `given` does not say otherwise: a policy is judged on
/// what it was trained on.
std::vector<std::string> settings_of(const std::string& checkpoint, const std::string& task_name,
                                     const std::vector<std::string>& given) {
  std::vector<std::string> settings = given;
  const std::optional<Experiment> experiment = experiment_of(checkpoint);
  if (!experiment) return settings;
  for (const TaskOptions& task : experiment->tasks) {
    if (task.env != task_name) continue;
    for (const auto& [name, value] : task.options) {
      const std::string key = name + "=";
      const bool is_given =
          std::any_of(given.begin(), given.end(), [&](const std::string& text) { return text.starts_with(key); });
      if (!is_given && !value.empty()) settings.push_back(name + "=" + value);
    }
    break;  // the first entry of the task's name
  }
  return settings;
}

}  // namespace

envs::TaskMix checkpoint_tasks(const std::string& checkpoint, const std::string& task,
                               const std::vector<std::string>& options, uint64_t seed) {
  const envs::Options chosen = task_options(task, settings_of(checkpoint, task, options));
  std::vector<envs::TaskMix::Entry> entries;
  entries.push_back({task, envs::find_task(task)->make(chosen), 1.0});
  return envs::TaskMix(std::move(entries), seed, false);
}

void require_symbols(const envs::TaskMix& tasks, const envs::Tokenizer& tokenizer, const std::string& option,
                     const std::string& task) {
  const std::string lacking = tasks.lacking(tokenizer);
  if (!lacking.empty())
    throw InputError({"--" + option + " " + task}, "the task needs the " + lacking,
                     "the checkpoint's tokenizer does not have it: it was trained on another task");
}

std::string first_task_of_run(const std::string& checkpoint) {
  const std::optional<Experiment> experiment = experiment_of(checkpoint);
  return experiment && !experiment->tasks.empty() ? experiment->tasks.front().env : "";
}

}  // namespace motley::app
