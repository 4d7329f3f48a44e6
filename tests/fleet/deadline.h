// Waiting in tests that involve other processes: never without a limit.
#pragma once

#include <chrono>
#include <thread>

namespace motley::fleet {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

/// Asks every 2 ms until `done()` says yes (true), or `limit` is over (false). It is asked once more at the end.
template <class Done>
bool wait_until(Seconds limit, const Done& done) {
  const auto end = Clock::now() + limit;
  while (!done()) {
    if (Clock::now() >= end) return done();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

inline Seconds since(Clock::time_point start) { return Clock::now() - start; }

}  // namespace motley::fleet
