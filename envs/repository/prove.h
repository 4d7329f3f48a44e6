// Whether a task is one: proved by running it.
#pragma once

#include <string>
#include <vector>

#include "envs/repository/score.h"

namespace motley::envs {

/// What is wrong with a task, each in a line, as far as running it shows, each run in sandboxes of its own: the
/// untouched tree passes the tests, the reference fix does not, a perfect episode's commands do not lead there, the
/// task cannot be scored at all. Empty: nothing. For tasks that inspect_task finds nothing wrong with. Throws nothing
/// that the task or the system can cause.
std::vector<std::string> prove_task(SandboxHost& host, const RepositoryTask& task);

/// Runs a task's demonstration in a sandbox and scores what it leaves.
Score score_demonstration(SandboxHost& host, const RepositoryTask& task);

}  // namespace motley::envs
