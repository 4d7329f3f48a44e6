// Threads that wait for what tasks do (commands in a sandbox, a scorer), so that who computes need not.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "actors/interaction_driver.h"

namespace motley::actors {

/// Calls into tasks on `count` threads, each call of one episode, at most one at a time of each. Used from one thread.
class TaskThreads {
 public:
  explicit TaskThreads(int64_t count);
  /// Waits for the calls that run; those that have not begun are dropped.
  ~TaskThreads();
  TaskThreads(const TaskThreads&) = delete;
  TaskThreads& operator=(const TaskThreads&) = delete;

  struct Answer {
    size_t episode = 0;
    EpisodeStep step{};
  };
  /// `call` throws nothing. In their order, as far as threads are free.
  void add(size_t episode, std::function<EpisodeStep()> call);
  /// What has come back since. With `wait`: after at most 50 ms in which nothing did.
  std::vector<Answer> take(bool wait);
  /// Calls whose answers have not been taken.
  size_t open() const { return open_; }

 private:
  void work();

  size_t open_ = 0;  // of the one thread that uses it
  std::mutex mutex_;
  std::condition_variable added_, answered_;
  std::deque<std::pair<size_t, std::function<EpisodeStep()>>> calls_;
  std::vector<Answer> answers_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace motley::actors
