// A run that listens, in another thread, and what joins it.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <future>
#include <mutex>

#include "actors/remote/join.h"
#include "tests/actors/tiny_run.h"

namespace motley::actors {

/// A run of no sampler of its own; its log says where it listens.
class Listening final : public RunObserver {
 public:
  void started(int64_t, int64_t, int64_t) override {}
  void warm_start(int64_t, int64_t, double, bool) override {}
  void update(int64_t update, const algos::Metrics& metrics) override {
    rows.push_back(metrics);
    const std::lock_guard lock(mutex_);
    update_ = update;
    changed_.notify_all();
  }
  void message(const std::string& text) override {
    const std::lock_guard lock(mutex_);
    notes.push_back(text);
    changed_.notify_all();
  }
  Address address() {
    constexpr std::string_view kBefore = "--join ";
    std::unique_lock lock(mutex_);
    std::optional<Address> found;
    changed_.wait_for(lock, std::chrono::seconds(20), [&] {
      for (const std::string& note : notes)
        if (const size_t place = note.find(kBefore); place != std::string::npos)
          found = parse_join_address(note.substr(place + kBefore.size()));
      return found.has_value();
    });
    return found.value();
  }
  void wait_for_update(int64_t update) {
    std::unique_lock lock(mutex_);
    REQUIRE(changed_.wait_for(lock, std::chrono::seconds(20), [&] { return update_ >= update; }));
  }
  /// For a note that holds the text.
  void wait_for(const std::string& text) {
    std::unique_lock lock(mutex_);
    REQUIRE(changed_.wait_for(lock, std::chrono::seconds(20), [&] {
      return std::any_of(notes.begin(), notes.end(),
                         [&](const std::string& note) { return note.find(text) != std::string::npos; });
    }));
  }
  /// Notes that hold the text.
  int64_t count(const std::string& text) {
    const std::lock_guard lock(mutex_);
    return std::count_if(notes.begin(), notes.end(),
                         [&](const std::string& note) { return note.find(text) != std::string::npos; });
  }

  std::vector<algos::Metrics> rows;
  std::vector<std::string> notes;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t update_ = -1;
};

inline Experiment remote_experiment(int64_t updates) {
  Experiment experiment = tiny_experiment(true);
  experiment.run.updates = updates;
  experiment.run.keep_trajectories = "all";
  experiment.samplers[0].replicas = 0;
  return experiment;
}

struct Running {
  explicit Running(const Experiment& experiment, std::shared_ptr<const Keys> keys = nullptr) {
    RunRequest request{.experiment = experiment, .folder = folder.path()};
    request.listen = ListenOptions{.address = {"127.0.0.1", 0}, .keys = std::move(keys)};
    result = std::async(std::launch::async,
                        [this, request = std::move(request)] { return run_experiment(request, seen, stop); });
    address = seen.address();
  }
  ~Running() { stop = 1; }
  TemporaryFolder folder;
  Listening seen;
  StopRequest stop{0};
  Address address;
  std::future<RunSummary> result;  // the last: it ends first
};

/// A process that joined it.
struct Joined {
  using Say = std::function<void(const std::string&)>;
  explicit Joined(std::function<JoinEnd(const Say&, StopRequest&)> join) {
    end = std::async(std::launch::async, [this, join = std::move(join)] {
      return join(
          [this](const std::string& text) {
            const std::lock_guard lock(mutex);
            said.push_back(text);
          },
          stop);
    });
  }
  explicit Joined(JoinRequest request)
      : Joined([request = std::move(request)](const Say& say, StopRequest& stop) {
          return run_sampler(request, say, stop);
        }) {}
  ~Joined() { stop = 1; }
  std::mutex mutex;
  std::vector<std::string> said;
  StopRequest stop{0};
  std::future<JoinEnd> end;
};

}  // namespace motley::actors
