#include "kernels/parallel.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <mutex>
#include <set>
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

TEST_CASE("several threads may call at once, each within its share") {
  std::atomic<int> failures = 0;
  std::vector<std::thread> callers;
  for (int t = 0; t < 4; ++t) {
    callers.emplace_back([&failures, t] {
      set_compute_threads(1 + t % 3);
      for (int round = 0; round < 200; ++round) {
        std::atomic<int64_t> sum = 0;
        std::mutex mutex;
        std::set<std::thread::id> ids;
        parallel_for(64, 1, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) sum += i;
          const std::lock_guard lock(mutex);
          ids.insert(std::this_thread::get_id());
        });
        if (sum != 64 * 63 / 2 || static_cast<int>(ids.size()) > compute_threads()) ++failures;
      }
    });
  }
  for (auto& caller : callers) caller.join();
  CHECK(failures == 0);
  CHECK(compute_threads() == 1);
}

}  // namespace motley::kernels
