// The task that a policy is given: with the options that its own run gave it.
#pragma once

#include <string>
#include <vector>

#include "app/policy.h"
#include "envs/environment.h"

namespace motley::app {

/// One task by name. `options` (key=value) come first; those not given are the run's that the checkpoint lies in, else
/// the task's defaults. InputError for an unknown name or option.
envs::TaskMix checkpoint_tasks(const std::string& checkpoint, const std::string& task,
                               const std::vector<std::string>& options, uint64_t seed);
/// InputError, at "--<option> <task>", unless the tokenizer has every symbol and special token that the tasks need.
void require_symbols(const envs::TaskMix& tasks, const envs::Tokenizer& tokenizer, const std::string& option,
                     const std::string& task);
/// The first task of the run that the checkpoint lies in; empty if it lies in none.
std::string first_task_of_run(const std::string& checkpoint);

}  // namespace motley::app
