#include "kernels/parallel.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace motley::kernels {
namespace {

/// How long a thread that has just computed looks for more before it sleeps. Waking it takes as long as a product of
/// one row, of which a decode step has hundreds, a few microseconds apart.
constexpr auto kSpin = std::chrono::microseconds(50);

/// Waits for done() for as long as kSpin.
template <class Done>
void spin_until(Done done) {
  for (const auto end = std::chrono::steady_clock::now() + kSpin; std::chrono::steady_clock::now() < end;) {
    for (int i = 0; i < 16; ++i) {
      if (done()) return;
      hwy::Pause();
    }
  }
}

/// One parallel_for: lives on the caller's stack, which waits until no helper holds it.
struct Job {
  const std::function<void(int64_t, int64_t)>& body;
  const int64_t count, pieces;
  const ComputeSide side;
  std::atomic<int64_t> next{0};
  std::atomic<int> helpers{0};         // threads inside run(), the caller aside; changed under the pool's mutex
  std::exception_ptr error = nullptr;  // the first one; guarded by the pool's mutex
};

thread_local bool inside_piece = false;
thread_local bool leased = false;
thread_local ComputeSide current_side = ComputeSide::sampler;

class Pool {
 public:
  void resize(int threads, int trainer_threads) {
    const std::lock_guard lock(mutex_);
    threads = std::max(threads, 1);
    threads_ = threads;
    const int trainer = std::clamp(trainer_threads, 1, threads);
    share_ = {trainer, std::max(1, threads - trainer)};
    for (; workers_ < threads - 1; ++workers_) std::thread([this] { work(); }).detach();
  }
  int threads() const { return threads_.load(std::memory_order_relaxed); }

  void acquire(ComputeSide side, bool* has_work) {
    std::unique_lock lock(mutex_);
    account();
    if (!std::exchange(*has_work, true)) ++with_work_;
    const uint64_t ticket = next_ticket_++;
    waiting_[index(side)].push_back(ticket);
    ++waiting_count_;
    grant_leases();
    granted_.wait(lock, [&] { return std::erase(granted_tickets_, ticket) > 0; });
  }
  void release(ComputeSide side) {
    const std::lock_guard lock(mutex_);
    --leases_;
    give_back(side);
  }
  void rest(bool* has_work) {
    if (!*has_work) return;
    const std::lock_guard lock(mutex_);
    account();
    *has_work = false;
    --with_work_;
  }

  void run(Job& job, bool with_lease) {
    {
      const std::lock_guard lock(mutex_);
      if (!with_lease) take(job.side);  // beyond the limit, if it must be: this thread runs already
      jobs_.push_back(&job);
      wake_helpers();
    }
    run_pieces(job, false);
    std::unique_lock lock(mutex_);
    std::erase(jobs_, &job);
    if (job.helpers > 0) {
      lock.unlock();
      spin_until([&] { return job.helpers == 0; });
      lock.lock();
    }
    finished_.wait(lock, [&] { return job.helpers == 0; });
    if (!with_lease) give_back(job.side);
    if (job.error) std::rethrow_exception(job.error);
  }

  ComputeUse use() {
    const std::lock_guard lock(mutex_);
    account();
    return use_;
  }

 private:
  static size_t index(ComputeSide side) { return static_cast<size_t>(side); }
  int busy() const { return held_[0] + held_[1]; }
  bool below_share(size_t side) const { return held_[side] < share_[side]; }

  /// Adds the time since the last change to the books.
  void account() {
    const auto now = std::chrono::steady_clock::now();
    const auto elapsed = static_cast<uint64_t>(std::chrono::nanoseconds(now - since_).count());
    since_ = now;
    const int idle = std::max(0, threads_ - busy());
    use_.busy += elapsed * static_cast<uint64_t>(busy());
    if (busy() > 0) use_.any += elapsed;
    use_.starved += elapsed * static_cast<uint64_t>(std::min(idle, std::max(0, with_work_ - leases_)));
  }
  void take(ComputeSide side) {
    account();
    ++held_[index(side)];
  }
  void give_back(ComputeSide side) {
    account();
    --held_[index(side)];
    grant_leases();
    wake_helpers();
  }

  /// The side whose client gets the next thread: of those below their share, else of all, the one who came first.
  int next_waiting() const {
    int best = -1;
    for (int side = 0; side < 2; ++side) {
      if (waiting_[side].empty()) continue;
      if (best < 0 || below_share(side) > below_share(best) ||
          (below_share(side) == below_share(best) && waiting_[side].front() < waiting_[best].front()))
        best = side;
    }
    return best;
  }
  void grant_leases() {
    bool any = false;
    for (int side; busy() < threads_ && (side = next_waiting()) >= 0; any = true) {
      granted_tickets_.push_back(waiting_[side].front());
      waiting_[side].pop_front();
      --waiting_count_;
      ++leases_;
      take(static_cast<ComputeSide>(side));
    }
    if (any) granted_.notify_all();
  }

  /// The job that a helper should take, or null: one of a side below its share first.
  Job* next_job() {
    if (busy() >= threads_) return nullptr;
    Job* best = nullptr;
    for (Job* job : jobs_) {
      if (job->next.load(std::memory_order_relaxed) >= job->pieces) continue;
      if (!best || below_share(index(job->side)) > below_share(index(best->side))) best = job;
    }
    return best;
  }
  void wake_helpers() {
    if (jobs_.empty() || busy() >= threads_) return;
    ++offers_;
    if (threads_ - busy() > spinning_) ready_.notify_one();
  }
  /// Looks for a job for a while without the lock. Null: none came.
  Job* spin_for_job(std::unique_lock<std::mutex>& lock) {
    ++spinning_;
    const uint64_t seen = offers_;
    lock.unlock();
    spin_until([&] { return offers_ != seen; });
    lock.lock();
    --spinning_;
    return next_job();
  }
  /// A client waits for a thread, and this helper's side has more than its share, or the client is of the same side.
  bool should_leave(ComputeSide side) {
    if (waiting_count_.load(std::memory_order_relaxed) == 0) return false;
    const std::lock_guard lock(mutex_);
    const int waiting = next_waiting();
    return waiting >= 0 && (waiting == static_cast<int>(side) || held_[index(side)] > share_[index(side)]);
  }

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      Job* job = next_job();
      if (!job && busy() < threads_) job = spin_for_job(lock);
      if (!job) ready_.wait(lock, [&] { return (job = next_job()) != nullptr; });
      ++job->helpers;
      take(job->side);
      wake_helpers();
      lock.unlock();
      run_pieces(*job, true);
      lock.lock();
      const ComputeSide side = job->side;
      if (--job->helpers == 0) finished_.notify_all();
      give_back(side);
    }
  }

  void run_pieces(Job& job, bool helping) {
    inside_piece = true;
    try {
      do {
        const int64_t i = job.next.fetch_add(1);
        if (i >= job.pieces) break;
        job.body(job.count * i / job.pieces, job.count * (i + 1) / job.pieces);
      } while (!helping || !should_leave(job.side));
    } catch (...) {
      job.next = job.pieces;
      const std::lock_guard lock(mutex_);
      if (!job.error) job.error = std::current_exception();
    }
    inside_piece = false;
  }

  std::mutex mutex_;
  std::condition_variable ready_, granted_, finished_;
  std::atomic<int> threads_{1};
  std::array<int, 2> share_{1, 1}, held_{0, 0};  // by side
  std::array<std::deque<uint64_t>, 2> waiting_;  // tickets
  std::atomic<int> waiting_count_{0};
  std::vector<uint64_t> granted_tickets_;
  std::vector<Job*> jobs_;
  uint64_t next_ticket_ = 0;
  std::atomic<uint64_t> offers_{0};  // times that there was a job and a thread to spare
  int leases_ = 0, with_work_ = 0, workers_ = 0, spinning_ = 0;
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
  ComputeUse use_;
};

/// Never destroyed: its threads may outlive static destructors.
Pool& pool() {
  static Pool* instance = new Pool;
  return *instance;
}

}  // namespace

void set_compute_threads(int threads, int trainer_threads) { pool().resize(threads, trainer_threads); }

int compute_threads() { return pool().threads(); }

void parallel_for(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
  if (count <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  const int64_t threads = std::min<int64_t>(compute_threads(), count / grain);
  if (threads <= 1 || inside_piece) return body(0, count);
  // About four pieces a thread even out unequal work.
  Job job{body, count, std::min(count / grain, 4 * threads), current_side};
  pool().run(job, leased);
}

void ComputeClient::rest() { pool().rest(&has_work_); }

ComputeLease::ComputeLease(ComputeClient& client) : side_(client.side_) {
  pool().acquire(side_, &client.has_work_);
  leased = true;
  current_side = side_;
}
ComputeLease::~ComputeLease() {
  leased = false;
  pool().release(side_);
}

ComputeUse compute_use() { return pool().use(); }

}  // namespace motley::kernels
