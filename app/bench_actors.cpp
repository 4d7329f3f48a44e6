// motley bench actors: what surrounds the model in a run. The way of one request, and of whole episodes.
#include <algorithm>

#include "actors/path_times.h"
#include "app/bench.h"
#include "app/scratch_folder.h"

namespace motley::app {
namespace {

double quantile(const std::vector<double>& sorted, double q) {
  return sorted[static_cast<size_t>(q * static_cast<double>(sorted.size() - 1))];
}

BenchRow request_row(const std::string& name, int64_t count, bool remote) {
  const ScratchFolder scratch;
  actors::RequestTimes times = actors::time_requests(count, remote, scratch.path());
  std::sort(times.seconds.begin(), times.seconds.end());
  BenchRow row;
  row.group = "actors";
  row.name = name;
  row.seconds = spread_of(times.seconds);
  row.more = {{"requests", count},
              {"median_microseconds", quantile(times.seconds, 0.5) * 1e6},
              {"p99_microseconds", quantile(times.seconds, 0.99) * 1e6},
              {"engine_microseconds", times.engine_seconds * 1e6}};
  return row;
}

}  // namespace

void check_actors(const BenchArguments&) {}

std::vector<BenchRow> bench_actors(const BenchArguments& arguments) {
  const int64_t requests = arguments.quick ? 200 : 5000, updates = arguments.quick ? 5 : 40;
  std::vector<BenchRow> rows{request_row("a request to a sampler in the same process", requests, false),
                             request_row("a request to a sampler that joined over loopback", requests, true)};
  const ScratchFolder scratch;
  const actors::EpisodeTimes times = actors::time_episodes(updates, scratch.path());
  const auto episodes = static_cast<double>(times.episodes);
  BenchRow row;
  row.group = "actors";
  row.name = "episodes of one token through a run";
  row.seconds = spread_of({times.seconds});
  row.more = {{"trajectories", times.episodes},
              {"trajectories_per_second", episodes / times.seconds},
              {"microseconds_each", times.seconds / episodes * 1e6},
              {"microseconds_each_without_training", (times.seconds - times.train_seconds) / episodes * 1e6},
              {"microseconds_each_without_compute", times.without_compute / episodes * 1e6}};
  rows.push_back(row);
  return rows;
}

}  // namespace motley::app
