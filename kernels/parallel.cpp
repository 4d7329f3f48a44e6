#include "kernels/parallel.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

namespace motley::kernels {
namespace {

/// One parallel_for: lives on the caller's stack, which waits until no helper holds it.
struct Job {
  const std::function<void(int64_t, int64_t)>& body;
  const int64_t count, pieces;
  std::atomic<int64_t> next{0};
  int helpers = 0;                     // threads inside run(), the caller aside; guarded by the pool's mutex
  std::exception_ptr error = nullptr;  // the first one; guarded by the pool's mutex
};

thread_local bool inside_piece = false;

class Pool {
 public:
  void ask_for(int more) {
    std::lock_guard lock(mutex_);
    wanted_ += more;
    for (; workers_ < wanted_; ++workers_) std::thread([this] { work(); }).detach();
  }

  void run(Job& job, int helpers) {
    {
      std::lock_guard lock(mutex_);
      for (int i = 0; i < helpers; ++i) tickets_.push_back(&job);
    }
    for (int i = 0; i < helpers; ++i) ready_.notify_one();
    run_pieces(job);
    std::unique_lock lock(mutex_);
    std::erase(tickets_, &job);
    finished_.wait(lock, [&] { return job.helpers == 0; });
    if (job.error) std::rethrow_exception(job.error);
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      ready_.wait(lock, [&] { return !tickets_.empty(); });
      Job& job = *tickets_.front();
      tickets_.pop_front();
      ++job.helpers;
      lock.unlock();
      run_pieces(job);
      lock.lock();
      if (--job.helpers == 0) finished_.notify_all();
    }
  }

  void run_pieces(Job& job) {
    inside_piece = true;
    try {
      for (;;) {
        const int64_t i = job.next.fetch_add(1);
        if (i >= job.pieces) break;
        job.body(job.count * i / job.pieces, job.count * (i + 1) / job.pieces);
      }
    } catch (...) {
      job.next = job.pieces;
      std::lock_guard lock(mutex_);
      if (!job.error) job.error = std::current_exception();
    }
    inside_piece = false;
  }

  std::mutex mutex_;
  std::condition_variable ready_, finished_;
  std::deque<Job*> tickets_;
  int wanted_ = 0, workers_ = 0;
};

/// Never destroyed: its threads may outlive static destructors.
Pool& pool() {
  static Pool* instance = new Pool;
  return *instance;
}

/// A calling thread's share; given back when the thread ends.
struct Share {
  int threads = 1;
  ~Share() {
    if (threads > 1) pool().ask_for(1 - threads);
  }
};
thread_local Share share;

}  // namespace

void set_compute_threads(int threads) {
  threads = std::max(threads, 1);
  pool().ask_for(threads - share.threads);
  share.threads = threads;
}

int compute_threads() { return share.threads; }

void parallel_for(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
  if (count <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  const int64_t threads = std::min<int64_t>(share.threads, count / grain);
  if (threads <= 1 || inside_piece) return body(0, count);
  // About four pieces a thread even out unequal work.
  Job job{body, count, std::min(count / grain, 4 * threads)};
  pool().run(job, static_cast<int>(threads) - 1);
}

}  // namespace motley::kernels
