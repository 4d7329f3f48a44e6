// Small repository tasks made from a seed, in five families: few tokens, one or two commands to each, so that a small
// model can learn them. What each family is: docs/repository-tasks.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "envs/repository/task.h"

namespace motley::envs {

/// "files", "lines", "bash", "awk", "python".
const std::vector<std::string>& task_families();

/// Task number `index` of a family's endless set; depends on seed, index and held_out alone. Held-out tasks (a tenth,
/// by a hash of issue and tree) never occur in training. Its id is FAMILY-INDEX, with "h" before a held-out index.
/// Throws TaskError: no such family.
RepositoryTask generate_task(std::string_view family, uint64_t seed, uint64_t index, bool held_out);

/// `count` different tasks, the families in turn, a tenth of them (rounded up) held out. Throws TaskError: no such
/// family, or one that has too few.
std::vector<RepositoryTask> generate_tasks(uint64_t seed, uint64_t count,
                                           const std::vector<std::string>& families = task_families());

/// Pieces of text that the generated tasks are made of, longer than a character, as symbols of a tokenizer.
const std::vector<std::string>& task_symbols();

/// A task as one line of JSON, which load_repository_tasks reads as the same task. For trees in memory alone.
std::string to_json_line(const RepositoryTask& task);

}  // namespace motley::envs
