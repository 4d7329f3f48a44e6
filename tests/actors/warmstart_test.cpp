// The supervised warm start and its cache.
#include "actors/warmstart.h"

#include <cmath>

#include "actors/evaluator.h"
#include "kernels/parallel.h"
#include "tests/actors/tiny_run.h"

using namespace motley;
using namespace motley::actors;
namespace fs = std::filesystem;

namespace {

struct Start {
  std::shared_ptr<StartingPoint> point;
  std::vector<double> losses;
  bool cached = false;
};

class Watcher final : public RunObserver {
 public:
  explicit Watcher(Start& start) : start_(start) {}
  void started(int64_t, int64_t, int64_t) override {}
  void warm_start(int64_t, int64_t, double loss, bool cached) override {
    start_.cached = cached;
    if (!cached) start_.losses.push_back(loss);
    if (stop_after > 0 && static_cast<int64_t>(start_.losses.size()) == stop_after) stop = 1;
  }
  void update(int64_t, const algos::Metrics&) override {}
  void message(const std::string&) override {}
  int64_t stop_after = 0;
  StopRequest stop{0};

 private:
  Start& start_;
};

Start start(const Experiment& experiment, const fs::path& folder, int64_t stop_after = 0) {
  Start result;
  Watcher watcher(result);
  watcher.stop_after = stop_after;
  const RunRequest request{.experiment = experiment, .folder = folder, .resume = {}, .stop_after = {}};
  result.point = prepare(request, watcher, watcher.stop).second;
  return result;
}

Experiment experiment_in(const TemporaryFolder& folder) {
  Experiment experiment = tiny_experiment(true);
  experiment.run.dir = folder.path().string();
  experiment.warmstart.steps = 60;
  experiment.warmstart.batch = 16;
  experiment.warmstart.lr = 1e-2;
  return experiment;
}

std::vector<fs::path> cache_entries(const TemporaryFolder& folder) {
  std::vector<fs::path> entries;
  if (fs::exists(folder / ".warmstart"))
    for (const auto& entry : fs::directory_iterator(folder / ".warmstart")) entries.push_back(entry.path());
  return entries;
}

}  // namespace

TEST_CASE("a warm start lowers the loss, and the second run takes its weights from the cache, bit for bit") {
  const TemporaryFolder folder;
  const Experiment experiment = experiment_in(folder);
  const Start first = start(experiment, folder.path());
  REQUIRE(first.losses.size() == 60);
  CHECK_FALSE(first.cached);
  CHECK(first.losses.back() < 0.8 * first.losses.front());
  const Start second = start(experiment, folder.path());
  CHECK(second.cached);
  CHECK(second.losses.empty());
  CHECK(second.point->parameters.fingerprints() == first.point->parameters.fingerprints());
  CHECK(cache_entries(folder).size() == 1);
}

TEST_CASE("whatever changes the result of a warm start changes its cache entry") {
  const TemporaryFolder folder;
  const Experiment base = experiment_in(folder);
  start(base, folder.path());
  std::vector<Experiment> others(6, base);
  others[0].warmstart.steps = 59;
  others[1].warmstart.lr = 2e-2;
  others[2].seed = 6;
  others[3].trainer.profile = "bf16";
  others[4].tasks[0].options["operations"] = "-";
  others[5].model.config.norm_eps = 1e-5;
  for (const Experiment& other : others) CHECK_FALSE(start(other, folder.path()).cached);
  CHECK(cache_entries(folder).size() == 7);

  Experiment shared = base;  // a run of another seed, from the same start
  shared.seed = 6;
  shared.model.seed = 5;
  CHECK(start(shared, folder.path()).cached);
}

TEST_CASE("a damaged cache entry is made again, and an interrupted warm start is not kept") {
  const TemporaryFolder folder;
  const Experiment experiment = experiment_in(folder);
  start(experiment, folder.path(), 5);
  CHECK(cache_entries(folder).empty());
  const Start whole = start(experiment, folder.path());
  fs::resize_file(cache_entries(folder).at(0) / "model.safetensors", 100);
  const Start again = start(experiment, folder.path());
  CHECK_FALSE(again.cached);
  CHECK(again.point->parameters.fingerprints() == whole.point->parameters.fingerprints());
  CHECK(start(experiment, folder.path()).cached);
}

TEST_CASE("a warm start and an evaluation's weights are computed under a lease") {
  const TemporaryFolder folder;
  Experiment experiment = experiment_in(folder);
  experiment.run.threads = 1;  // then the pool knows of leases alone
  experiment.warmstart.steps = 1;
  experiment.eval.prompts = 0;
  Start result;
  Watcher watcher(result);
  const RunRequest request{.experiment = experiment, .folder = folder.path(), .resume = {}, .stop_after = {}};
  const uint64_t before = kernels::compute_use().busy;
  const auto [fleet, point] = prepare(request, watcher, watcher.stop);
  const uint64_t warm = kernels::compute_use().busy;
  CHECK(warm > before);
  CHECK(evaluate_version(*fleet, point->parameters, 0).empty());
  CHECK(kernels::compute_use().busy > warm);
}

TEST_CASE("a mix of tasks warms up on all of them") {
  const TemporaryFolder folder;
  Experiment experiment = experiment_in(folder);
  experiment.tasks.push_back(experiment.tasks[0]);
  experiment.tasks[1].options["operations"] = "-";
  experiment.warmstart.steps = 5;
  CHECK(start(experiment, folder.path()).losses.size() == 5);
}

TEST_CASE("pairs of a file are used, and a bad line is named") {
  const TemporaryFolder folder;
  Experiment experiment = experiment_in(folder);
  experiment.warmstart.steps = 40;
  experiment.warmstart.data =
      folder
          .write("pairs.jsonl",
                 "{\"prompt\": \"1+1=\", \"answer\": \"2\"}\n\n{\"prompt\": \"2+2=\", \"answer\": \"4\"}\n")
          .string();
  CHECK(start(experiment, folder.path()).losses.back() < 0.7);
  folder.write("pairs.jsonl", "{\"prompt\": \"1+1=\", \"answer\": \"2\"}\n{\"prompt\": 3}\n");
  CHECK_THROWS_WITH(start(experiment, folder.path()), Catch::Contains("pairs.jsonl:2"));
  folder.write("pairs.jsonl", "\n");
  CHECK_THROWS_AS(start(experiment, folder.path()), envs::TaskError);
}
