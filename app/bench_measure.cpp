#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <stdexcept>

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

ChildRun run_self(const std::vector<std::string>& arguments) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe to a process of its own");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  std::vector<std::string> words{"motley"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t child = 0;
  const double start = seconds_now();
  const int failed = posix_spawn(&child, "/proc/self/exe", &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  ChildRun run;
  char buffer[4096];
  for (ssize_t count; !failed && (count = read(ends[0], buffer, sizeof buffer)) > 0;)
    run.out.append(buffer, static_cast<size_t>(count));
  close(ends[0]);
  if (failed) throw std::runtime_error("motley could not be started again as a process of its own");
  int status = 0;
  rusage use{};
  wait4(child, &status, 0, &use);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  run.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  run.seconds = seconds_now() - start;
  run.core_seconds = seconds(use.ru_utime) + seconds(use.ru_stime);
  run.peak_bytes = 1024.0 * static_cast<double>(use.ru_maxrss);
  return run;
}

}  // namespace motley::app
