// Repository tasks: a work tree, an issue, a test command, tests that stay hidden until scoring. Loaded from a JSONL
// file or a folder of folders, both untrusted. The format: docs/repository-tasks.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "envs/repository/patch.h"
#include "envs/repository/work_tree.h"

namespace motley::envs {

/// What an episode on the task, and its scoring, may use.
struct RepositoryLimits {
  int64_t turns = 32;             // replies of the model
  int64_t call_seconds = 30;      // one command
  int64_t episode_seconds = 600;  // all commands together
  int64_t test_seconds = 120;     // the test command
  int64_t memory_mib = 512;       // all processes together
  int64_t disk_mib = 256;         // the work tree and what is made in it
  int64_t processes = 64;
  int64_t output_bytes = 8192;  // of a command that the model is shown
  bool operator==(const RepositoryLimits&) const = default;
};

/// Files that are read when they are asked for, or that stand in the task itself.
using TreeSource = std::variant<std::filesystem::path, WorkTree>;

struct RepositoryTask {
  std::string id;     // letters, digits, '.', '_' and '-', at most 100
  std::string place;  // FILE:LINE or FILE, for messages
  std::string issue;  // what the model is asked
  std::string test;   // shell command, run in the work tree; exit status 0 is a pass
  TreeSource tree, tests;
  std::variant<std::monostate, std::string, TreeSource> fix{};  // none, a diff, or whole files in their fixed form
  std::vector<std::string> remove{};                            // patterns, beside scrubbed_always()
  std::vector<std::string> known_lines{};                       // that are no traces of the fix, wherever they stand
  std::vector<std::string> demonstration{};                     // commands of a perfect episode
  std::optional<bool> held_out{};                               // absent: by the hash of the id
  std::vector<std::string> sets{};                              // of held-out tasks that it belongs to: "hard"
  RepositoryLimits limits{};
};

/// A .jsonl file, a folder with a tasks.jsonl, or a folder with a folder for each task, in the order of ids. Checks all
/// that can be checked without reading the trees. Throws TaskError naming file, line and key.
std::vector<RepositoryTask> load_repository_tasks(const std::filesystem::path& path);

/// The work tree as the model sees it: scrubbed.
WorkTree visible_tree(const RepositoryTask& task);
/// The files that enter at scoring, in place of whatever stands at their paths.
WorkTree hidden_tests(const RepositoryTask& task);
/// The fix as a diff of the visible tree; empty: the task has none.
std::string reference_patch(const RepositoryTask& task);

/// What is wrong with a task, each in a line, as far as it shows without running anything: trees that cannot be read, a
/// fix that does not apply, touches the hidden tests or has left traces, hidden tests that stand in the tree. Empty:
/// nothing. Throws nothing that bad task data can cause.
std::vector<std::string> inspect_task(const RepositoryTask& task);

}  // namespace motley::envs
