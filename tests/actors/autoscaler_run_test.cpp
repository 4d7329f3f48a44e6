// Tiny runs whose fleet really grows and shrinks.
#include <algorithm>
#include <catch2/catch.hpp>

#include "actors/provision/provisioner.h"
#include "tests/actors/tiny_run.h"

namespace motley::actors {
namespace {

Experiment scaled_experiment() {
  Experiment experiment = tiny_experiment(true);
  experiment.run.updates = 1000000;
  experiment.eval.every = 0;
  experiment.eval.prompts = 1;
  experiment.autoscaler.enabled = true;
  experiment.autoscaler.every_seconds = 0.02;
  experiment.autoscaler.options.grow_after = 0.0;
  experiment.autoscaler.options.shrink_after = 0.1;
  experiment.samplers[0].minimum = 1;
  experiment.samplers[0].maximum = 2;
  experiment.samplers[0].price_per_hour = 3.0;
  return experiment;
}

/// A run that is stopped by what stands in its log, or after thirty seconds.
class Watched {
 public:
  explicit Watched(std::function<bool(const std::string&)> enough) : enough_(std::move(enough)) {}
  RunSummary run(const Experiment& experiment, const FleetHooks& hooks, bool listens = false) {
    RunRequest request{experiment, folder_.path(), {}, {}};
    if (listens) request.listen = ListenOptions{.address = {"127.0.0.1", 0}};
    return run_fleet(request, seen_, stop_, hooks);
  }
  const std::vector<std::string>& notes() const { return seen_.notes; }
  std::string prefix(const std::string& group) const {
    return instance_prefix(folder_.path().filename().string(), group);
  }
  size_t count(const std::string& part) const {
    return static_cast<size_t>(std::count_if(
        notes().begin(), notes().end(), [&](const std::string& note) { return note.find(part) != std::string::npos; }));
  }
  const auto& rows() const { return seen_.rows; }

 private:
  class Log final : public RunObserver {
   public:
    explicit Log(Watched& owner) : owner_(owner) {}
    void started(int64_t, int64_t, int64_t) override {}
    void warm_start(int64_t, int64_t, double, bool) override {}
    void update(int64_t update, const algos::Metrics& metrics) override {
      rows.emplace_back(update, metrics);
      if (std::chrono::steady_clock::now() - began_ > std::chrono::seconds(30)) owner_.stop_ = 1;
      if (owner_.enough_("update " + std::to_string(update))) owner_.stop_ = 1;
    }
    void message(const std::string& text) override {
      notes.push_back(text);
      if (owner_.enough_(text)) owner_.stop_ = 1;
    }
    std::vector<std::pair<int64_t, algos::Metrics>> rows;
    std::vector<std::string> notes;

   private:
    Watched& owner_;
    std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  };
  TemporaryFolder folder_;
  std::function<bool(const std::string&)> enough_;
  StopRequest stop_{0};
  Log seen_{*this};
};

TEST_CASE("a fleet grows while its learner waits, shrinks when it idles, and is paid for what it was", "[autoscaler]") {
  Experiment experiment = scaled_experiment();
  experiment.algo.epochs = 8;  // a learner that fast samplers wait for
  experiment.trainer.lr =
      1e-12;  // and that changes nothing: a busy machine takes many updates, which must raise no alarm
  std::atomic<bool> slow{true};
  std::atomic<uint64_t> added_steps{0};
  size_t stopped = 0, updates = 0;  // updates before the stop, and so far
  Watched watched([&](const std::string& text) {
    constexpr size_t kAfter = 8;
    if (text.find("autoscaler: stops 1") != std::string::npos && stopped == 0) stopped = updates;
    if (!text.starts_with("update ")) return false;
    ++updates;
    if (added_steps > 50) slow = false;
    return stopped > 0 && updates >= stopped + kAfter;
  });
  const RunSummary summary =
      watched.run(experiment, {.before_step = [&](const std::string&, uint64_t replica, int64_t) {
                    if (replica > 0) ++added_steps;
                    if (slow) std::this_thread::sleep_for(std::chrono::milliseconds(5));
                  }});
  REQUIRE(watched.notes().size() >= 2);
  CHECK_THAT(watched.notes()[0],
             Catch::StartsWith("autoscaler: starts 1 of group one, which has 1: the learner waits for "));
  CHECK_THAT(watched.notes()[1], Catch::StartsWith("autoscaler: stops 1 of group one, which has 2: ") &&
                                     Catch::EndsWith(" % of the capacity is idle"));
  CHECK(added_steps > 50);
  double most = 0.0, cost = 0.0, failed = 0.0, replica_seconds = 0.0;
  for (const auto& [update, metrics] : watched.rows()) {
    const double replicas = metrics.at("group/one/time/replicas");
    most = std::max(most, replicas);
    cost += metrics.at("cost/update");
    replica_seconds += replicas * metrics.at("time/update");
    if (update > 0) failed += metrics.at("samples/failed");
  }
  CHECK(failed == 0.0);
  CHECK(std::any_of(watched.rows().begin() + static_cast<std::ptrdiff_t>(stopped), watched.rows().end(),
                    [](const auto& row) { return row.second.at("group/one/time/replicas") == Approx(1.0); }));
  CHECK(most > 1.5);
  CHECK(cost == Approx(3.0 * replica_seconds / 3600.0));
  const double elapsed = watched.rows().back().second.at("time/elapsed");
  CHECK(replica_seconds > 1.05 * elapsed);
  CHECK(summary.groups[0].cost >= cost);
  CHECK(summary.groups[0].cost < 1.2 * cost + 3.0 / 3600.0);
}

TEST_CASE("maximum and budget hold however long the learner waits", "[autoscaler]") {
  Experiment experiment = scaled_experiment();
  SECTION("maximum") { experiment.samplers[0].maximum = 1; }
  SECTION("budget") { experiment.autoscaler.budget_per_hour = 5.9; }
  Watched watched([](const std::string& text) { return text == "update 4"; });
  watched.run(experiment, {.before_step = [](const std::string&, uint64_t, int64_t) {
                std::this_thread::sleep_for(std::chrono::milliseconds(3));
              }});
  CHECK(watched.notes().empty());
  CHECK(watched.rows().back().second.at("group/one/time/replicas") == Approx(1.0).epsilon(1e-3));
}

/// A group whose instances a command starts, and which never come.
SamplerGroupOptions far(const std::string& start) {
  SamplerGroupOptions group;
  group.name = "far";
  group.replicas = 0;
  group.minimum = 1;
  group.maximum = 1;
  group.max_sequences = 8;
  group.provision = {.provisioner = "command",
                     .start = {"sh", "-c", start, "{instance}"},
                     .stop = {"true", "{instance}"},
                     .list = {"true"}};
  return group;
}

TEST_CASE("starts that fail are tried three times, told with their cause, and the run goes on without",
          "[autoscaler]") {
  Experiment experiment = scaled_experiment();
  experiment.samplers.push_back(far("echo no room for $0 >&2; exit 3"));
  Watched watched([](const std::string& text) { return text.find("no more of this group") != std::string::npos; });
  watched.run(experiment, {}, true);
  CHECK(watched.count("autoscaler: starts 1 of group far, which has 0: its minimum, its maximum or the budget") == 3);
  CHECK(watched.count("-far-1: the start command 'sh' ended with exit status 3: no room for ") == 1);
  CHECK(watched.count(" (1 of 3): again in ") == 1);
  CHECK(watched.count("-far-3: the start command 'sh' ended with exit status 3: no room for ") == 1);
  CHECK(watched.count(" (3 of 3): no more of this group are started in this run") == 1);
}

TEST_CASE("an instance that never comes is stopped, and counts as a failure", "[autoscaler]") {
  Experiment experiment = scaled_experiment();
  experiment.samplers.push_back(far("true"));
  const TemporaryFolder folder;
  experiment.samplers[1].provision.join_seconds = 0.05;
  experiment.samplers[1].provision.stop = {"sh", "-c", "echo $0 >>" + (folder / "stopped").string(), "{instance}"};
  Watched watched([](const std::string& text) { return text.find("no more of this group") != std::string::npos; });
  watched.run(experiment, {}, true);
  CHECK(watched.count(": it did not come within 0 s (1 of 3)") == 1);
  const std::string stopped = folder.read("stopped");
  for (const std::string name : {"-far-1\n", "-far-2\n", "-far-3\n"}) {
    CAPTURE(stopped, name);
    CHECK(stopped.find(name) != std::string::npos);
  }
}

TEST_CASE("a run whose only group can never be started ends with the first cause", "[autoscaler]") {
  Experiment experiment = scaled_experiment();
  experiment.samplers = {far("echo no route >&2; exit 1")};
  Watched watched([](const std::string&) { return false; });
  CHECK_THROWS_WITH(watched.run(experiment, {}, true),
                    Catch::StartsWith("autoscaler: no replica serves, and none can be started: group far: ") &&
                        Catch::Contains("no route"));
}

TEST_CASE("what an earlier process left running is found, given its time, and stopped", "[autoscaler]") {
  Experiment experiment = scaled_experiment();
  experiment.samplers.push_back(far("exit 1"));
  const TemporaryFolder folder;
  ProvisionOptions& provision = experiment.samplers[1].provision;
  provision.join_seconds = 0.05;
  provision.list = {"sh", "-c", "ls " + folder.path().string()};
  provision.stop = {"sh", "-c", "rm " + folder.path().string() + "/$0", "{instance}"};
  Watched watched([&](const std::string& text) { return text.find("it did not come") != std::string::npos; });
  const std::string prefix = watched.prefix("far");
  folder.write(prefix + "7", "");
  folder.write("another-far-1", "");
  watched.run(experiment, {}, true);
  CHECK(watched.count("group far: 1 instances of an earlier process still run") == 1);
  CHECK(watched.count(prefix + "7: it did not come within 0 s") == 1);
  CHECK_FALSE(std::filesystem::exists(folder / (prefix + "7")));
  CHECK(std::filesystem::exists(folder / "another-far-1"));
}

}  // namespace
}  // namespace motley::actors
