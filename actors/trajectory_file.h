// Recorded batches: <run>/trajectories/update-NNNNNN.msgpack, one file per update, written before its step. The file is
// a msgpack map {format, version, update, trajectories}; floats are stored as their bits, so reading gives back the
// same values. Untrusted bytes: every array is checked against the others on reading.
#pragma once

#include <filesystem>
#include <vector>

#include "algos/trajectory.h"

namespace motley::actors {

std::filesystem::path trajectory_path(const std::filesystem::path& run_folder, int64_t update);
void write_trajectories(const std::filesystem::path& file, int64_t update,
                        const std::vector<algos::Trajectory>& trajectories);
/// Throws std::runtime_error with the path and the reason for a file that is cut short or does not fit together.
std::vector<algos::Trajectory> read_trajectories(const std::filesystem::path& file, int64_t vocabulary);
/// Applies run.keep_trajectories: removes the files of updates older than the newest `keep`.
void prune_trajectories(const std::filesystem::path& run_folder, int64_t newest_update, int64_t keep);

}  // namespace motley::actors
