#include "envs/sandbox/helper/call.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>
#include <string>

#include "envs/sandbox/helper/middle_cut.h"
#include "envs/sandbox/helper/processes.h"
#include "envs/sandbox/helper/system.h"

namespace motley::envs {
namespace {

constexpr uint64_t watch_interval = 50000;  // microseconds between two looks at memory and files

class Call {
 public:
  Call(Session& session, Shell& shell, const CallOrder& order)
      : session_(session),
        shell_(shell),
        output_(order.output_bytes),
        began_(now_microseconds()),
        limit_(began_ + uint64_t{1000} * order.limit_milliseconds) {
    statuses_open_ = shell.serves_session();
    if (!statuses_open_) return;
    pending_ = std::string(order.command) + '\0';
    char stale[256];  // what a command has forged must not answer the next one
    while (read(shell.statuses(), stale, sizeof stale) > 0) {
    }
  }

  wire::Report run() {
    before_ = sandbox_processes();
    most_files_ = std::max(session_.limits.files, sandbox_files());  // beyond the limit they may still be removed
    while (!done_) {
      const uint64_t now = now_microseconds();
      if (now >= session_.deadline) end_sandbox(wire::episode_over);
      if (now >= limit_) time_is_over();
      if (!done_ && now >= next_look_) look(now);
      if (!done_) wait(now);
    }
    if (shell_.alive()) drain();
    shell_.remember_folder();
    report_.microseconds = now_microseconds() - began_;
    report_.cut = output_.cut();
    report_.head = output_.head();
    report_.tail = output_.tail();
    return report_;
  }

 private:
  void wait(uint64_t now) {
    const uint64_t until = std::min({limit_, session_.deadline, next_look_});
    pollfd fds[5] = {{session_.control, POLLRDHUP, 0},
                     {session_.children, POLLIN, 0},
                     {output_open_ ? shell_.output() : -1, POLLIN, 0},
                     {statuses_open_ ? shell_.statuses() : -1, POLLIN, 0},
                     {pending_.empty() ? -1 : shell_.commands(), POLLOUT, 0}};
    const int milliseconds = until <= now ? 0 : static_cast<int>((until - now) / 1000 + 1);
    if (poll(fds, 5, milliseconds) <= 0) return;
    if ((fds[0].revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0) end_sandbox("");
    if (fds[2].revents != 0) read_output();
    if (fds[4].revents != 0) write_command();
    if (fds[3].revents != 0) read_status();
    if (fds[1].revents != 0) {
      acknowledge_children(session_.children);
      reap();
      if (!done_ && !shell_.alive()) shell_ended();
    }
  }

  void reap() {
    pid_t pid = 0;
    for (int status = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
      shell_.ended(pid, status);
      session_.shell.ended(pid, status);
    }
  }

  bool read_output() {
    char buffer[65536];
    const ssize_t got = read(shell_.output(), buffer, sizeof buffer);
    if (got > 0) output_.add({buffer, static_cast<size_t>(got)});
    if (got == 0) output_open_ = false;  // all writers closed it; poll would not wait any more
    return got > 0;
  }

  /// What was written before the command came back is in the pipe, which holds a bounded number of bytes; what a
  /// process in the background adds meanwhile must not keep us here.
  void drain() {
    for (int chunk = 0; chunk < 32 && read_output(); ++chunk) {
    }
  }

  void write_command() {
    const ssize_t wrote = write(shell_.commands(), pending_.data(), pending_.size());
    if (wrote > 0) pending_.erase(0, static_cast<size_t>(wrote));
    if (wrote < 0 && errno == EPIPE) pending_.clear();  // the shell is ending; its death says the rest
  }

  void read_status() {
    char byte = 0;
    ssize_t got = 0;
    while (!done_ && (got = read(shell_.statuses(), &byte, 1)) == 1) {
      if (byte != '\0' && digits_.size() < 8) digits_.push_back(byte);
      if (byte != '\0') continue;
      report_.status = static_cast<uint32_t>(strtoul(digits_.c_str(), nullptr, 10)) & 255U;
      done_ = true;
    }
    if (got == 0) statuses_open_ = false;
  }

  void shell_ended() {
    read_status();  // it may have answered before
    drain();
    if (!done_) report_.status = shell_.last_status();
    shell_.forget();
    report_.new_shell = true;
    done_ = true;
  }

  void end_everything() {
    drain();
    kill_everything();
    drain();
    shell_.forget();
    session_.shell.forget();
    report_.new_shell = true;
    done_ = true;
  }

  /// The shell goes too: it would go on with the rest of the command.
  void time_is_over() {
    report_.timed_out = true;
    report_.status = 128 + SIGKILL;
    shell_.remember_folder();
    drain();
    before_.erase(shell_.pid());
    kill_others(before_);
    reap();
    for (const pid_t pid : sandbox_processes())
      if (!before_.contains(pid)) return end_everything();  // they multiply: all at once, jobs of earlier calls too
    drain();
    shell_.forget();
    report_.new_shell = true;
    done_ = true;
  }

  void look(uint64_t now) {
    next_look_ = now + watch_interval;
    report_.killed = beyond_limits(session_.limits.watched_memory, most_files_);
    if (report_.killed == wire::Killed::no) return;
    report_.status = 128 + SIGKILL;
    shell_.remember_folder();
    end_everything();
  }

  Session& session_;
  Shell& shell_;
  MiddleCut output_;
  std::string pending_, digits_;
  uint64_t began_, limit_, next_look_ = 0, most_files_ = 0;
  std::set<pid_t> before_;
  bool done_ = false, output_open_ = true, statuses_open_ = true;
  wire::Report report_;
};

wire::Report no_shell() {
  wire::Report report;
  report.status = 126;
  report.new_shell = true;
  report.head = "no shell could be started: too many processes\n";
  return report;
}

}  // namespace

void acknowledge_children(int children) {
  signalfd_siginfo info[16];
  while (read(children, info, sizeof info) > 0) {
  }
}

void end_sandbox(const char* reason) {
  write_all(STDERR_FILENO, reason);
  _exit(0);
}

wire::Report run_call(Session& session, const CallOrder& order) {
  const bool lost = session.shell.ended_unseen();
  if (!session.shell.start()) return no_shell();
  wire::Report report = Call(session, session.shell, order).run();
  report.new_shell = report.new_shell || lost;
  return report;
}

wire::Report run_once(Session& session, const CallOrder& order) {
  Shell shell(session.limits, std::string(order.command));
  std::set<pid_t> before = sandbox_processes();
  if (!shell.start()) return no_shell();
  wire::Report report = Call(session, shell, order).run();
  kill_others(before);
  session.shell.reap();
  shell.forget();
  report.new_shell = !session.shell.alive();
  return report;
}

}  // namespace motley::envs
