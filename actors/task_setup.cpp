#include "actors/task_setup.h"

#include <xxhash.h>

#include <algorithm>
#include <thread>

#include "kernels/philox.h"

namespace motley::actors {
namespace {

constexpr uint64_t kProblemsLookedAt = 16;  // of each task, in training and held out

uint64_t text_digest(uint64_t digest, const std::string& text) {
  return kernels::mix(digest, XXH3_64bits(text.data(), text.size()));
}

uint64_t problem_digest(uint64_t digest, const envs::Problem& problem) {
  digest = text_digest(text_digest(digest, problem.prompt), problem.answer);
  for (const envs::Problem& question : problem.more) digest = problem_digest(digest, question);
  return digest;
}

}  // namespace

std::shared_ptr<const envs::TaskMix> make_tasks(const Experiment& experiment, uint64_t seed) {
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
  return std::make_shared<const envs::TaskMix>(std::move(entries), seed);
}

std::vector<TaskDigest> task_digests(const envs::TaskMix& tasks, uint64_t seed) {
  std::vector<TaskDigest> digests;
  for (const envs::TaskMix::Entry& entry : tasks.entries()) {
    uint64_t digest = 0;
    for (const bool held_out : {false, true}) {
      const std::optional<uint64_t> size = entry.task->epoch_size(held_out);
      digest = kernels::mix(digest, size.value_or(0));
      for (uint64_t i = 0; i < std::min(size.value_or(kProblemsLookedAt), kProblemsLookedAt); ++i)
        digest = problem_digest(digest, entry.task->problem(seed, i, held_out));
    }
    digests.push_back({entry.name, digest});
  }
  return digests;
}

std::string other_tasks(const std::vector<TaskDigest>& mine, const std::vector<TaskDigest>& theirs) {
  if (mine.size() != theirs.size())
    return "it has " + std::to_string(theirs.size()) + " tasks, this run " + std::to_string(mine.size());
  for (size_t i = 0; i < mine.size(); ++i)
    if (mine[i] != theirs[i]) return "task " + mine[i].name + " gives other problems there: is its data the same?";
  return {};
}

int64_t worker_threads(int64_t wanted) {
  constexpr int64_t kLeast = 4;  // where some hang, others go on
  if (wanted > 0) return wanted;
  return std::max<int64_t>(kLeast, 2 * static_cast<int64_t>(std::thread::hardware_concurrency()));
}

}  // namespace motley::actors
