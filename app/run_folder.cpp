#include "app/run_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "actors/checkpoint.h"

namespace motley::app {
namespace {

namespace fs = std::filesystem;

/// These say how long, how fast and where, but not what is computed from the checkpoint on.
bool may_differ(const std::string& path) {
  static const std::vector<std::string> free{
      "name",        "run.updates", "run.dir",        "run.keep_trajectories", "run.checkpoint_every",
      "run.threads", "run.workers", "trainer.threads"};
  return std::find(free.begin(), free.end(), path) != free.end() || path.ends_with(".price_per_hour") ||
         path.starts_with("watch.") || path.starts_with("probe.");
}

void require_agreement(const Experiment& recorded, const Experiment& given, const fs::path& own,
                       const std::string& where) {
  const auto old_values = experiment_values(recorded), new_values = experiment_values(given);
  const auto refuse = [&](const std::string& path) {
    const auto text = [&](const std::map<std::string, std::string>& values) {
      const auto found = values.find(path);
      return found == values.end() ? std::string("absent") : found->second;
    };
    throw InputError(
        {where}, fmt::format("{} is {}, but the run to resume has {}", path, text(new_values), text(old_values)),
        "a resumed run may change run.updates, run.threads, run.workers, trainer.threads, run.checkpoint_every, "
        "run.keep_trajectories, run.dir, [watch], [probe], name and prices; see " +
            own.string());
  };
  for (const auto& [path, value] : old_values) {
    const auto other = new_values.find(path);
    if (!may_differ(path) && (other == new_values.end() || other->second != value)) refuse(path);
  }
  for (const auto& [path, value] : new_values) {
    if (!may_differ(path) && !old_values.contains(path)) refuse(path);
  }
}

void require_work(const RunArguments& arguments, const Resumption& found) {
  if (found.update >= found.experiment.run.updates) {
    throw InputError(
        {"--resume " + arguments.resume},
        fmt::format("nothing is left to do: {} of {} updates are finished", found.update, found.experiment.run.updates),
        fmt::format("--set run.updates={} would double them", 2 * found.update));
  }
  if (arguments.stop_after && *arguments.stop_after <= found.update) {
    throw InputError({fmt::format("--stop-after {}", *arguments.stop_after)},
                     fmt::format("the checkpoint was written after update {}", found.update),
                     "a later update is wanted");
  }
}

}  // namespace

std::optional<fs::path> enclosing_run_folder(const fs::path& path) {
  const fs::path clean = fs::weakly_canonical(path);
  for (const fs::path& folder : {clean, clean.parent_path().parent_path()}) {
    if (fs::is_regular_file(folder / "experiment.toml")) return folder;
  }
  return std::nullopt;
}

fs::path make_run_folder(const Experiment& experiment) {
  const std::string base = fmt::format("{}-{}", experiment.name, experiment.seed);
  std::error_code error;
  const auto require_made = [&](const fs::path& folder) {
    if (!error) return;
    throw InputError({"run.dir = " + experiment.run.dir}, folder.string() + " cannot be made: " + error.message(),
                     "give a folder that can be written to");
  };
  fs::create_directories(experiment.run.dir, error);
  require_made(experiment.run.dir);
  for (int suffix = 1;; ++suffix) {
    fs::path folder = fs::path(experiment.run.dir) / (suffix == 1 ? base : fmt::format("{}-{}", base, suffix));
    if (fs::create_directory(folder, error)) return folder;
    require_made(folder);
  }
}

FolderLock::FolderLock(const fs::path& folder)
    : descriptor_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  // A file system that knows no such locks gives another error, and no protection.
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  ::close(descriptor_);
  throw InputError({folder.string()}, "another motley run is at work in this folder",
                   "wait for its end, or stop it, before the run is resumed");
}

FolderLock::~FolderLock() { ::close(descriptor_); }

Resumption find_resumption(const RunArguments& arguments) {
  Resumption found;
  const std::optional<fs::path> folder = enclosing_run_folder(arguments.resume);
  if (!folder)
    throw InputError({"--resume " + std::string(arguments.resume)}, "no run folder: there is no experiment.toml",
                     "give the folder that a run has printed, or a checkpoint in it");
  found.folder = *folder;
  const fs::path own = found.folder / "experiment.toml";
  const fs::path wanted = fs::weakly_canonical(arguments.resume);
  found.checkpoint = actors::find_checkpoint(wanted);
  const Experiment recorded = load_experiment({own, {}, ""});
  const fs::path file = arguments.toml.empty() ? own : fs::path(arguments.toml);
  found.experiment = load_experiment({file, arguments.sets, arguments.seed, !arguments.dry_run});
  require_agreement(recorded, found.experiment, own, file.string());
  const actors::Checkpoint checkpoint = actors::load_checkpoint(found.checkpoint);
  if (!checkpoint.state || !checkpoint.optimizer) {
    throw actors::CheckpointError(found.checkpoint.string() + ": holds weights only; a run cannot go on from it");
  }
  found.update = static_cast<int64_t>(checkpoint.state->version);
  require_work(arguments, found);
  return found;
}

}  // namespace motley::app
