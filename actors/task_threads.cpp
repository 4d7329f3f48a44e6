#include "actors/task_threads.h"

#include <chrono>
#include <utility>

namespace motley::actors {

TaskThreads::TaskThreads(int64_t count) {
  for (int64_t i = 0; i < count; ++i) threads_.emplace_back([this] { work(); });
}

TaskThreads::~TaskThreads() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  added_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void TaskThreads::add(size_t episode, std::function<EpisodeStep()> call) {
  ++open_;
  {
    const std::lock_guard lock(mutex_);
    calls_.emplace_back(episode, std::move(call));
  }
  added_.notify_one();
}

std::vector<TaskThreads::Answer> TaskThreads::take(bool wait) {
  std::unique_lock lock(mutex_);
  if (wait) answered_.wait_for(lock, std::chrono::milliseconds(50), [this] { return !answers_.empty(); });
  open_ -= answers_.size();
  return std::exchange(answers_, {});
}

void TaskThreads::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    added_.wait(lock, [this] { return ending_ || !calls_.empty(); });
    if (ending_) return;
    auto [episode, call] = std::move(calls_.front());
    calls_.pop_front();
    lock.unlock();
    EpisodeStep step = call();
    call = nullptr;  // what it holds ends here, not under the lock
    lock.lock();
    answers_.push_back({episode, std::move(step)});
    answered_.notify_one();
  }
}

}  // namespace motley::actors
