// The tasks of an experiment, and how two processes know that they have the same ones.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "actors/experiment.h"

namespace motley::actors {

/// Throws envs::TaskError, and what a task's constructor throws.
std::shared_ptr<const envs::TaskMix> make_tasks(const Experiment& experiment, uint64_t seed);

/// Of one task: its first problems of training and of those held out, and how many it has, in one number.
struct TaskDigest {
  std::string name;
  uint64_t digest = 0;
  bool operator==(const TaskDigest&) const = default;
};
std::vector<TaskDigest> task_digests(const envs::TaskMix& tasks, uint64_t seed);
/// Why a process with tasks `theirs` would compute something else than one with `mine`; empty: it would not.
std::string other_tasks(const std::vector<TaskDigest>& mine, const std::vector<TaskDigest>& theirs);

/// Calls into tasks that a process makes at once, each on a thread of its own; 0: two per core, at least 4.
int64_t worker_threads(int64_t wanted);

}  // namespace motley::actors
