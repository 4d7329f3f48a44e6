// What travels between a run and a worker in another process: calls into tasks, and what they came to. Bytes from the
// network are untrusted, as in actors/remote/wire.h; numbers come back bit for bit.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "actors/fleet.h"
#include "actors/remote/wire.h"
#include "actors/task_setup.h"

namespace motley::actors {

inline constexpr uint64_t kMostSlots = 1024;  // of one worker: calls at once

/// A worker's first word: it has the tasks, and makes so many calls at once.
struct ReadyBody {
  uint64_t slots = 0;
  std::vector<TaskDigest> tasks;
};

/// What a step may hold.
struct StepLimits {
  int64_t vocabulary = 0;  // ids
  int64_t positions = 0;   // tokens of the whole episode
  int64_t context = 0;     // of those, read and drawn before the step
  size_t replies = 0;      // of the episode so far
};
/// Why a step is none that a task may give; empty: it is one. Of what is sent as of what has come.
std::string wrong_step(const EpisodeStep& step, const StepLimits& limits);

std::string ready_body(const ReadyBody& ready);
/// Without `pick` and `driver`, which do not travel.
std::string work_body(uint64_t number, const EpisodeJob& job);
std::string worked_body(uint64_t number, const EpisodeStep& step);

/// Each throws WireError. Ids of tokens are below `vocabulary`.
ReadyBody parse_ready(std::string_view body);
std::pair<uint64_t, EpisodeJob> parse_work(std::string_view body, int64_t vocabulary);
/// Held to its limits by wrong_step().
std::pair<uint64_t, EpisodeStep> parse_worked(std::string_view body);

}  // namespace motley::actors
