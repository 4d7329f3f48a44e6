// This binary as a process of its own, for what must not share memory or time with
// the process that measures.
#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <stdexcept>

#include "app/bench.h"

namespace motley::app {
namespace {

volatile sig_atomic_t child_pid = 0, received = 0;

void end_child(int signal) {
  received = signal;
  if (child_pid > 0) kill(static_cast<pid_t>(child_pid), SIGKILL);
}

/// While it exists, a signal that would end this process ends the child at once:
/// what it leaves is removed by the caller.
class Stopping {
 public:
  Stopping() {
    received = 0;
    child_pid = 0;
    for (size_t i = 0; i < kSignals.size(); ++i) {
      struct sigaction ours {};
      ours.sa_handler = end_child;
      sigaction(kSignals[i], &ours, &before_[i]);
      if (before_[i].sa_handler == SIG_IGN) sigaction(kSignals[i], &before_[i], nullptr);  // nohup
    }
  }
  ~Stopping() {
    child_pid = 0;
    for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
  }
  Stopping(const Stopping&) = delete;
  Stopping& operator=(const Stopping&) = delete;
  void end_with_us(pid_t child) const {
    child_pid = static_cast<sig_atomic_t>(child);
    if (received) kill(child, SIGKILL);  // it came in between
  }
  void child_has_ended() const {
    child_pid = 0;
    if (received) throw std::runtime_error("stopped by a signal; nothing was measured");
  }

 private:
  static constexpr std::array kSignals{SIGINT, SIGTERM, SIGHUP};
  std::array<struct sigaction, kSignals.size()> before_{};
};

}  // namespace

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
  const Stopping stopping;  // until the child is gone
  const int failed = posix_spawn(&child, "/proc/self/exe", &actions, nullptr, argv.data(), environ);
  if (!failed) stopping.end_with_us(child);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  ChildRun run;
  char buffer[4096];
  while (!failed) {
    const ssize_t count = read(ends[0], buffer, sizeof buffer);
    if (count > 0) run.out.append(buffer, static_cast<size_t>(count));
    if (count == 0 || (count < 0 && errno != EINTR)) break;
  }
  close(ends[0]);
  if (failed) throw std::runtime_error("motley could not be started again as a process of its own");
  int status = 0;
  rusage use{};
  while (wait4(child, &status, 0, &use) < 0 && errno == EINTR) {
  }
  stopping.child_has_ended();
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
