#include "envs/sandbox/helper/shell.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "envs/sandbox/helper/system.h"

namespace motley::envs {
namespace {

// The shell's own ends, far from the descriptors that commands use by number; a command does not inherit them.
constexpr int command_end = 60, status_end = 61;
constexpr const char* script =
    "while IFS= read -r -d '' -u 60; do eval \"$REPLY\" 60<&- 61>&-; builtin printf '%d\\0' \"$?\" >&61; done";

void limit(__rlimit_resource resource, uint64_t value) {
  const rlimit both{value, value};
  setrlimit(resource, &both);
}

}  // namespace

void Shell::become_shell(int commands, int statuses, int output) const {
  const int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  if (serves_session()) {
    dup2(commands, command_end);
    dup2(statuses, status_end);
  }
  close(nothing);
  if (chdir(folder_.c_str()) != 0 && chdir(wire::work_folder) != 0) _exit(126);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  // The kernel is to kill anything here before the first process, without which the sandbox ends.
  const int score = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (score >= 0) write_all(score, "1000");
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_NPROC, limits_.processes);
  limit(RLIMIT_NOFILE, limits_.open_files);
  limit(RLIMIT_FSIZE, limits_.file_bytes);
  limit(RLIMIT_CPU, limits_.cpu_seconds);
  limit(RLIMIT_MEMLOCK, 0);
  limit(RLIMIT_MSGQUEUE, 0);
  // Where memory is looked at every now and then, one process at least cannot pass the limit in between.
  if (limits_.watched_memory > 0) limit(RLIMIT_DATA, limits_.watched_memory);
  execl("/bin/bash", "bash", "--norc", "--noprofile", "-c", serves_session() ? script : command_.c_str(), "bash",
        nullptr);
  _exit(127);
}

bool Shell::start() {
  if (alive()) return true;
  forget();
  int command[2], status[2], out[2];
  if (pipe2(command, O_CLOEXEC) != 0 || pipe2(status, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) return false;
  pid_ = fork();
  if (pid_ == 0) become_shell(command[0], status[1], out[1]);
  close(command[0]);
  close(status[1]);
  close(out[1]);
  commands_ = command[1];
  statuses_ = status[0];
  output_ = out[0];
  for (const int fd : {commands_, statuses_, output_}) fcntl(fd, F_SETFL, O_NONBLOCK);
  return pid_ > 0;
}

void Shell::ended(pid_t pid, int status) {
  if (pid != pid_) return;
  pid_ = 0;
  last_status_ = static_cast<uint32_t>(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
}

void Shell::reap() {
  pid_t pid = 0;
  for (int status = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) ended(pid, status);
}

void Shell::remember_folder() {
  if (!alive()) return;
  char target[4096];
  const ssize_t size = readlink(("/proc/" + std::to_string(pid_) + "/cwd").c_str(), target, sizeof target);
  if (size > 0 && size < static_cast<ssize_t>(sizeof target)) folder_.assign(target, static_cast<size_t>(size));
}

void Shell::forget() {
  pid_ = 0;
  for (int* fd : {&commands_, &statuses_, &output_}) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
  }
}

}  // namespace motley::envs
