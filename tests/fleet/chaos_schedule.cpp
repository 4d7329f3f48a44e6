#include "tests/fleet/chaos_schedule.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>

namespace motley::fleet {
namespace {

using Kind = Disturbance::Kind;

/// Draws that are the same with every standard library.
class Draws {
 public:
  explicit Draws(uint64_t seed) : engine_(seed) {}
  double uniform(double low, double high) {
    return low + (high - low) * static_cast<double>(engine_() >> 11) * 0x1p-53;
  }
  double exponential(double mean) { return -mean * std::log1p(-uniform(0, 1)); }
  size_t index(size_t count) { return static_cast<size_t>(engine_() % count); }

 private:
  std::mt19937_64 engine_;
};

std::string relay_command(Draws& draws) {
  const std::string direction[] = {"", " up", " down"};
  const std::string port[] = {"", " port 0", " port 1", " port 2", " port 3"};
  const std::string where = direction[draws.index(3)] + port[draws.index(5)];
  switch (draws.index(6)) {
    case 0:
      return "delay " + std::to_string(20 + draws.index(480)) + where;
    case 1:
      return "rate " + std::to_string(20000 + draws.index(400000)) + where;
    case 2:
      return "stall" + where;
    case 3:
      return "drop" + where;
    case 4:
      return "reset" + port[draws.index(5)];
    default:
      return (draws.index(2) == 0 ? "abandon client" : "abandon server") + port[draws.index(5)];
  }
}

Disturbance of_sampler(Draws& draws, double lost_after) {
  Disturbance made;
  // Two of three silences are short enough to be waited for, or nearly; the others are long.
  const double silence = draws.index(3) == 0 ? draws.uniform(1.2, 3) * lost_after : draws.uniform(0.1, 1) * lost_after;
  switch (draws.index(6)) {
    case 0:
      made.kind = Kind::kill;
      made.seconds = draws.uniform(0, 4);
      break;
    case 1:
      made.kind = Kind::leave;
      made.seconds = draws.uniform(0, 4);
      break;
    case 2:
      made.kind = Kind::stop;
      made.seconds = silence;
      break;
    case 3:
      made.kind = Kind::unplug;
      made.seconds = silence;
      break;
    default:
      made.kind = Kind::relay;
      made.command = relay_command(draws);
      made.seconds = silence;
      break;
  }
  return made;
}

}  // namespace

std::vector<Disturbance> chaos_schedule(uint64_t seed, double seconds, int samplers, double lost_after) {
  std::vector<Disturbance> schedule;
  for (int sampler = 0; sampler < samplers; ++sampler) {
    Draws draws(seed * 1000 + static_cast<uint64_t>(sampler));
    for (double at = draws.exponential(8);;) {
      Disturbance next = of_sampler(draws, lost_after);
      next.at = at;
      next.sampler = sampler;
      if (at + next.seconds > seconds) break;
      at += next.seconds + 2 + draws.exponential(8);
      schedule.push_back(std::move(next));
    }
  }
  Draws draws(seed * 1000 + 999);
  for (double at = draws.uniform(30, 60); at + 5 < seconds; at += draws.uniform(60, 120))
    schedule.push_back({.kind = Kind::restart, .at = at, .seconds = draws.uniform(0, 3)});
  std::stable_sort(schedule.begin(), schedule.end(), [](const auto& a, const auto& b) { return a.at < b.at; });
  return schedule;
}

std::string describe(const Disturbance& disturbance) {
  const char* const words[] = {"kill", "leave", "stop", "unplug", "relay", "kill and resume"};
  const std::string who =
      disturbance.kind == Kind::restart ? "the run" : "sampler " + std::to_string(disturbance.sampler);
  const std::string what =
      disturbance.kind == Kind::relay ? disturbance.command : words[static_cast<size_t>(disturbance.kind)];
  char line[160];
  std::snprintf(line, sizeof line, "%6.1f s  %s: %s, for %.1f s", disturbance.at, who.c_str(), what.c_str(),
                disturbance.seconds);
  return line;
}

}  // namespace motley::fleet
