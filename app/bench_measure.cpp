#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>

#include "app/bench.h"
#include "kernels/parallel.h"

namespace motley::app {
namespace {

constexpr int64_t kMaxCalls = 1000000;  // of one repetition

double time_calls(const BenchCase& c, int64_t calls) {
  if (c.timed) return c.timed();
  const double start = seconds_now();
  for (int64_t i = 0; i < calls; ++i) c.call();
  return (seconds_now() - start) / static_cast<double>(calls);
}

/// Calls that fill one repetition, from a first one that also warms caches up.
int64_t calls_needed(const BenchCase& c, double seconds) {
  if (c.timed) return 1;
  c.call();
  const double once = std::max(time_calls(c, 1), 1e-9);
  return std::clamp(static_cast<int64_t>(std::ceil(seconds / once)), int64_t{1}, kMaxCalls);
}

}  // namespace

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double process_bytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key + ":")) return 1024.0 * std::stod(line.substr(key.size() + 1));
  }
  return 0;
}

Spread spread_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  const double median = values.size() % 2 == 1 ? values[middle] : 0.5 * (values[middle - 1] + values[middle]);
  return {median, values.front(), values.back()};
}

Effort effort_of(const BenchArguments& arguments) {
  Effort effort;
  if (arguments.quick) effort = {0.0005, 2};
  if (arguments.repetitions) effort.repetitions = static_cast<int>(*arguments.repetitions);
  return effort;
}

std::vector<BenchRow> run_cases(std::vector<BenchCase> cases, const Effort& effort) {
  std::vector<int64_t> calls;
  for (const BenchCase& c : cases) {
    std::fputs(fmt::format("bench: {}: {}\n", c.row.group, c.row.name).c_str(), stderr);
    kernels::set_compute_threads(static_cast<int>(c.row.threads));
    calls.push_back(calls_needed(c, effort.seconds));
  }
  std::vector<std::vector<double>> seconds(cases.size());
  for (int repetition = 0; repetition < effort.repetitions; ++repetition) {
    for (size_t i = 0; i < cases.size(); ++i) {
      kernels::set_compute_threads(static_cast<int>(cases[i].row.threads));
      seconds[i].push_back(time_calls(cases[i], calls[i]));
    }
  }
  std::vector<BenchRow> rows;
  for (size_t i = 0; i < cases.size(); ++i) {
    rows.push_back(std::move(cases[i].row));
    rows.back().seconds = spread_of(seconds[i]);
  }
  return rows;
}

}  // namespace motley::app
