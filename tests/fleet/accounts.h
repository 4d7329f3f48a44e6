// What became of every episode of a run, by the files that it left.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace motley::fleet {

struct Accounts {
  int64_t updates = 0;                      // of the newest checkpoint: those that its weights have seen
  int64_t samples = 0;                      // in them
  int64_t failed = 0;                       // of these: not trained on, with a reason
  int64_t moved = 0;                        // of these: went on on another replica
  std::map<std::string, int64_t> by_group;  // samples, by sampler group
  std::vector<std::string> faults;          // what is lost, twice there, or does not add up; at most 20
};

/// `run`: a run's folder with all its trajectories, and no groups dropped (run.max_staleness, algo.drop_equal_groups).
/// Counts as a fault: a sample that is twice in the updates; a group that is cut; a prompt that was issued, is in no
/// update and would not be issued again by a resume; a failure without a reason, or that no row of metrics.jsonl
/// counts; a row that is missing or twice there; a token that is younger than its batch.
Accounts take_accounts(const std::filesystem::path& run, int64_t group_size);

/// The values of a metric in metrics.jsonl, in the order of the rows that have it.
std::vector<double> metric(const std::filesystem::path& run, const std::string& name);

}  // namespace motley::fleet
