// Recorded batches: <run>/trajectories/update-NNNNNN.msgpack, one file per update, written before its step. The file is
// a msgpack map {format, version, update, trajectories}; floats are stored as their bits, so reading gives back the
// same values. Untrusted bytes: every array is checked against the others on reading.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "algos/trajectory.h"

namespace motley::actors {

std::filesystem::path trajectory_path(const std::filesystem::path& run_folder, int64_t update);
/// The bytes of such a file.
std::string trajectories_to_bytes(int64_t update, const std::vector<algos::Trajectory>& trajectories);
/// Throws std::runtime_error with the reason for bytes that are cut short or do not fit together.
std::vector<algos::Trajectory> trajectories_from_bytes(std::string_view bytes, int64_t vocabulary);
void write_trajectories(const std::filesystem::path& file, int64_t update,
                        const std::vector<algos::Trajectory>& trajectories);
/// The same errors, with the path.
std::vector<algos::Trajectory> read_trajectories(const std::filesystem::path& file, int64_t vocabulary);
/// Applies run.keep_trajectories: removes the files of updates older than the newest `keep`.
void prune_trajectories(const std::filesystem::path& run_folder, int64_t newest_update, int64_t keep);

}  // namespace motley::actors
