// What the actors themselves cost: the way of a request from the environment's place to a sampler and back, and of
// whole episodes through a run, with a model so small that it hardly counts. For `motley bench actors`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace motley::actors {

struct RequestTimes {
  std::vector<double> seconds;  // of each request of one token, one after another
  double engine_seconds = 0.0;  // of these, on average, in the engine
};
/// A session through the router to a sampler and back: in this process, or over loopback sockets to one that has
/// joined.
RequestTimes time_requests(int64_t requests, bool remote, const std::filesystem::path& scratch);

struct EpisodeTimes {
  int64_t episodes = 0;          // trained on, in `seconds`
  double seconds = 0.0;          // of the updates that count
  double without_compute = 0.0;  // of these, in which no thread worked on the model
  double train_seconds = 0.0;
};
/// An asynchronous run of one sampler whose episodes are one token long: all that is left is what surrounds the model.
EpisodeTimes time_episodes(int64_t updates, const std::filesystem::path& scratch);

}  // namespace motley::actors
