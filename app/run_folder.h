// The folder of a run: a fresh one with the next free name, or an old one that is continued.
#pragma once

#include <filesystem>
#include <optional>

#include "app/commands.h"
#include "app/experiment_toml.h"

namespace motley::app {

/// <dir>/<name>-<seed>, or with the first free suffix -2, -3, ... The folder is made here, so that two runs which start
/// together get two. InputError where it cannot be made.
std::filesystem::path make_run_folder(const Experiment& experiment);

/// The run folder that `path` is, or that the checkpoint `path` lies in; nothing if there is none.
std::optional<std::filesystem::path> enclosing_run_folder(const std::filesystem::path& path);

/// What --resume continues.
struct Resumption {
  std::filesystem::path folder, checkpoint;
  int64_t update = 0;  // that the checkpoint was written after
  Experiment experiment;
};
/// The experiment is the run's own, with --set; or a TOML that agrees with it in all but a few keys (InputError names
/// the first one that differs).
Resumption find_resumption(const RunArguments& arguments);

/// Two processes that write one run folder would spoil it: the first holds this lock, the second is refused.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder);  // throws InputError
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();

 private:
  int descriptor_;
};

}  // namespace motley::app
