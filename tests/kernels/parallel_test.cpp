#include "kernels/parallel.h"

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/kernels/values.h"

namespace motley::kernels {

TEST_CASE("parallel_for covers every item once, in pieces of at least the grain") {
  for (const int threads : {1, 2, 4}) {
    const Threads scope(threads);
    REQUIRE(compute_threads() == threads);
    for (const int64_t count : {0, 1, 2, 7, 64, 1000}) {
      for (const int64_t grain : {1, 3, 100}) {
        std::vector<std::atomic<int>> seen(static_cast<size_t>(count));
        std::atomic<bool> small = false;
        parallel_for(count, grain, [&](int64_t begin, int64_t end) {
          if (end - begin < std::min(grain, count)) small = true;
          for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
        });
        CHECK_FALSE(small);
        for (const auto& times : seen) REQUIRE(times == 1);
      }
    }
  }
}

TEST_CASE("an exception of a piece is rethrown, and the pool goes on") {
  const Threads scope(3);
  const auto fail = [](int64_t begin, int64_t) {
    if (begin > 0) throw std::runtime_error("piece");
  };
  for (int i = 0; i < 20; ++i) CHECK_THROWS_WITH(parallel_for(100, 1, fail), "piece");
  std::atomic<int64_t> sum = 0;
  parallel_for(100, 1, [&](int64_t begin, int64_t end) { sum += end - begin; });
  CHECK(sum == 100);
}

TEST_CASE("nested calls run serially on their own thread") {
  const Threads scope(4);
  std::atomic<int> wrong = 0;
  parallel_for(16, 1, [&](int64_t, int64_t) {
    const auto me = std::this_thread::get_id();
    int calls = 0;
    parallel_for(1000, 1, [&](int64_t begin, int64_t end) {
      ++calls;
      if (std::this_thread::get_id() != me || begin != 0 || end != 1000) ++wrong;
    });
    if (calls != 1) ++wrong;
  });
  CHECK(wrong == 0);
}

TEST_CASE("several threads may call at once") {
  const Threads scope(3);
  std::atomic<int> failures = 0;
  std::vector<std::thread> callers;
  for (int t = 0; t < 4; ++t) {
    callers.emplace_back([&failures] {
      for (int round = 0; round < 200; ++round) {
        std::atomic<int64_t> sum = 0;
        parallel_for(64, 1, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) sum += i;
        });
        if (sum != 64 * 63 / 2) ++failures;
      }
    });
  }
  for (auto& caller : callers) caller.join();
  CHECK(failures == 0);
}

namespace {

/// Counts the threads inside, by side, and the most at once.
class Crowd {
 public:
  void enter(ComputeSide side) {
    ++inside_[static_cast<size_t>(side)];
    const int now = ++all_;
    for (int most = most_; now > most && !most_.compare_exchange_weak(most, now);) {
    }
  }
  void leave(ComputeSide side) {
    --all_;
    --inside_[static_cast<size_t>(side)];
  }
  int inside(ComputeSide side) const { return inside_[static_cast<size_t>(side)]; }
  int most() const { return most_; }

 private:
  std::array<std::atomic<int>, 2> inside_{};
  std::atomic<int> all_ = 0, most_ = 0;
};

/// Returns when the threads together have been busy so long.
void compute_for(uint64_t nanoseconds) {
  const uint64_t before = compute_use().busy;
  while (compute_use().busy < before + nanoseconds) std::this_thread::yield();
}

constexpr auto kTrainer = ComputeSide::trainer, kSampler = ComputeSide::sampler;

/// Runs a parallel_for of 32 pieces under a lease, each piece counted in `crowd`.
void compute(ComputeClient& client, ComputeSide side, Crowd& crowd, std::atomic<int64_t>& pieces) {
  const ComputeLease lease(client);
  parallel_for(32, 1, [&](int64_t begin, int64_t end) {
    crowd.enter(side);
    pieces += end - begin;
    std::this_thread::yield();
    crowd.leave(side);
  });
}

}  // namespace

TEST_CASE("leases never let more threads compute than the process was given, and lose no work") {
  for (const auto& [threads, trainer] : std::vector<std::pair<int, int>>{{1, 1}, {2, 1}, {3, 1}, {3, 2}, {4, 4}}) {
    const Threads scope(threads);
    set_compute_threads(threads, trainer);
    Crowd crowd;
    std::atomic<int64_t> pieces = 0;
    std::vector<std::thread> clients;
    for (int c = 0; c < 5; ++c) {
      clients.emplace_back([&, side = c == 0 ? kTrainer : kSampler] {
        ComputeClient client(side);
        for (int round = 0; round < 50; ++round) compute(client, side, crowd, pieces);
      });
    }
    for (auto& client : clients) client.join();
    CHECK(crowd.most() <= threads);
    CHECK(pieces == 5 * 50 * 32);
  }
}

TEST_CASE("a side that rests leaves its threads to the other, and gets its share back when it returns") {
  const Threads scope(2);
  ComputeClient trainer(kTrainer), first(kSampler), second(kSampler);
  std::atomic<bool> second_runs = false, trainer_runs = false, end_first = false;
  std::thread other, learner;
  {
    const ComputeLease lease(first);
    // The trainer rests, so the second sampler gets its thread.
    other = std::thread([&] {
      const ComputeLease mine(second);
      second_runs = true;
      while (!end_first) std::this_thread::yield();
    });
    while (!second_runs) std::this_thread::yield();
    learner = std::thread([&] {
      const ComputeLease mine(trainer);
      trainer_runs = true;
    });
    // Both threads are taken: the trainer must wait for the next border of a step.
    for (int i = 0; i < 1000; ++i) {
      std::this_thread::yield();
      REQUIRE_FALSE(trainer_runs);
    }
  }
  while (!trainer_runs) std::this_thread::yield();
  end_first = true;
  other.join();
  learner.join();
}

TEST_CASE("a waiting trainer comes before samplers that have more than their share") {
  const Threads scope(2);
  ComputeClient trainer(kTrainer);
  ComputeClient a(kSampler), b(kSampler), c(kSampler);
  std::mutex mutex;
  std::vector<char> order;
  std::atomic<int> queued = 0;
  std::vector<std::thread> threads;
  const auto client = [&](ComputeClient& who, char name) {
    threads.emplace_back([&who, name, &mutex, &order, &queued] {
      ++queued;
      const ComputeLease lease(who);
      const std::lock_guard lock(mutex);
      order.push_back(name);
    });
  };
  {
    const ComputeLease first(a);
    std::optional<ComputeLease> second(std::in_place, b);
    client(c, 'c');
    while (queued < 1) std::this_thread::yield();
    compute_for(20'000'000);  // until it waits in the queue
    client(trainer, 't');
    while (queued < 2) std::this_thread::yield();
    compute_for(20'000'000);
    second.reset();
    char next = 0;
    while (next == 0) {
      const std::lock_guard lock(mutex);
      if (!order.empty()) next = order.front();
    }
    CHECK(next == 't');
  }
  for (auto& thread : threads) thread.join();
  CHECK(order.size() == 2);
}

TEST_CASE("helpers of a side beyond its share leave when the other side wants to compute") {
  const Threads scope(2);
  ComputeClient trainer(kTrainer), sampler(kSampler);
  std::atomic<bool> helped = false, asking = false, queued = false, sampler_done = false, stayed = false;
  std::thread other;
  {
    const ComputeLease lease(trainer);
    const auto me = std::this_thread::get_id();
    parallel_for(8, 1, [&](int64_t, int64_t) {
      if (std::this_thread::get_id() != me) {
        // A helper that goes on with the trainer's pieces while the sampler waits.
        if (queued && !sampler_done) stayed = true;
        helped = true;
        while (!queued) std::this_thread::yield();
      } else if (!other.joinable()) {
        while (!helped) std::this_thread::yield();  // the idle thread helps
        other = std::thread([&] {
          asking = true;
          const ComputeLease mine(sampler);
          sampler_done = true;
        });
        while (!asking) std::this_thread::yield();
        compute_for(100'000'000);  // until it waits in the queue
        queued = true;
      }
    });
  }
  other.join();
  CHECK_FALSE(stayed);
}

TEST_CASE("the books tell busy threads, and threads that idle although a client has work") {
  const Threads scope(2);
  ComputeClient client(kSampler);
  const auto spend = [](uint64_t nanoseconds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(nanoseconds);
    while (std::chrono::steady_clock::now() < end) {
    }
  };
  const ComputeUse start = compute_use();
  {
    const ComputeLease lease(client);
    spend(2'000'000);
  }
  const ComputeUse held = compute_use();
  CHECK(held.busy - start.busy >= 2'000'000);
  CHECK(held.any - start.any == held.busy - start.busy);
  spend(2'000'000);  // it has work, and does not compute
  const ComputeUse waiting = compute_use();
  CHECK(waiting.starved - held.starved >= 2'000'000);
  client.rest();
  const ComputeUse rested = compute_use();
  spend(2'000'000);
  const ComputeUse end = compute_use();
  CHECK(end.starved == rested.starved);
  CHECK(end.busy == rested.busy);
}

}  // namespace motley::kernels
