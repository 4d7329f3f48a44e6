// What a tiny run has recorded of one of its updates.
#pragma once

#include <filesystem>
#include <vector>

#include "actors/trajectory_file.h"
#include "tests/actors/tiny_run.h"

namespace motley::actors {

struct Recorded {
  std::vector<algos::Trajectory> trajectories;
  envs::Tokenizer tokenizer;
};
inline Recorded recorded(const Outcome& outcome, const std::filesystem::path& folder, int64_t update) {
  const Checkpoint checkpoint = load_checkpoint(outcome.summary.checkpoint);
  return {read_trajectories(trajectory_path(folder, update), checkpoint.config.vocabulary), checkpoint.tokenizer};
}

}  // namespace motley::actors
