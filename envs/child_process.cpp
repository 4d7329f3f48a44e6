#include "envs/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "envs/utf8.h"

namespace motley::envs {
namespace {

struct Pipe {
  Descriptor read, write;
};
Pipe make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw ChildError(std::string("cannot be started: ") + std::strerror(errno));
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

/// What there is now; false at the end.
bool read_some(Descriptor& from, std::string& to) {
  std::array<char, 4096> block;
  const ssize_t got = read(from.get(), block.data(), block.size());
  if (got > 0) to.append(block.data(), static_cast<size_t>(got));
  return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

/// A write to a pipe that nobody reads makes SIGPIPE for the writing thread, which here blocks and discards it.
class NoBrokenPipe {
 public:
  NoBrokenPipe() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &set_, &before_);
  }
  NoBrokenPipe(const NoBrokenPipe&) = delete;
  NoBrokenPipe& operator=(const NoBrokenPipe&) = delete;
  ~NoBrokenPipe() {
    const timespec now{};
    while (sigtimedwait(&set_, nullptr, &now) > 0) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t set_{}, before_{};
};

/// setpriv(1) asks the kernel for the parent's death, sh(1) sees whether it has come already, and the program takes
/// their place: posix_spawn cannot ask, and a fork of a process that holds a model is slow.
std::vector<std::string> bound(std::vector<std::string> words) {
  std::vector<std::string> all{
      "setpriv", "--pdeathsig", "KILL", "sh", "-c", "[ \"$PPID\" = \"$0\" ] && exec \"$@\"", std::to_string(getpid())};
  std::move(words.begin(), words.end(), std::back_inserter(all));
  return all;
}

}  // namespace

std::string_view trimmed(std::string_view text) {
  const std::string_view blanks = " \t\r\n";
  const size_t first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

struct ChildProcess::Ends {
  int in, out, err;
};

ChildProcess::ChildProcess(ChildOptions options)
    : words_(options.bound_to_thread ? bound(std::move(options.words)) : std::move(options.words)),
      most_output_(options.most_output) {
  Pipe in = make_pipe(), out = make_pipe(), err = make_pipe();
  spawn({in.read.get(), out.write.get(), err.write.get()});
  in_ = std::move(in.write);
  out_ = std::move(out.read);
  err_ = std::move(err.read);
  exit_ = Descriptor(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  if (exit_.get() < 0) {
    const int error = errno;
    end();
    throw ChildError(std::string("cannot be watched: ") + std::strerror(error));
  }
  for (const int ours : {in_.get(), out_.get(), err_.get()}) fcntl(ours, F_SETFL, O_NONBLOCK);
}

void ChildProcess::spawn(const Ends& ends) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends.in, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends.out, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends.err, STDERR_FILENO);
  posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::vector<char*> arguments;
  for (std::string& word : words_) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const int error = posix_spawnp(&pid_, arguments[0], &actions, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error == 0) return;
  pid_ = 0;
  throw ChildError(std::string("cannot be started: ") + std::strerror(error));
}

void ChildProcess::signal(int number) const {
  if (pid_ != 0) kill(-pid_, number);
}

/// The group's number cannot be another's before its leader was waited for.
int ChildProcess::end() {
  if (pid_ == 0) return status_;
  kill(-pid_, SIGKILL);
  while (waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
  }
  pid_ = 0;
  return status_;
}

/// A program that has read enough, or nothing, is no error.
void ChildProcess::write_some(std::string_view& input) {
  const ssize_t written = write(in_.get(), input.data(), input.size());
  if (written > 0) input.remove_prefix(static_cast<size_t>(written));
  if (input.empty() || (written < 0 && errno != EAGAIN && errno != EINTR)) in_.reset();
}

void ChildProcess::take_output() {
  if (!read_some(out_, output_)) out_.reset();
  if (output_.size() <= most_output_) return;
  too_much_ = true;
  output_.resize(most_output_);
}

void ChildProcess::take_errors() {
  if (!read_some(err_, errors_)) err_.reset();
  if (errors_.size() > 2 * most_output_) errors_.erase(0, errors_.size() - most_output_);
}

bool ChildProcess::talk(std::string_view input, Clock::time_point deadline, const std::function<bool()>& cancelled) {
  const NoBrokenPipe guard;
  constexpr int64_t kSlice = 100;  // milliseconds between two questions
  bool exited = pid_ == 0;
  while (!exited) {
    const int64_t left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0 || (cancelled && cancelled())) return false;
    std::array<pollfd, 4> polled{{{exit_.get(), POLLIN, 0},
                                  {out_.get(), POLLIN, 0},
                                  {err_.get(), POLLIN, 0},
                                  {in_.get(), POLLOUT, 0}}};  // -1: closed, and passed over
    const int64_t wait = cancelled ? std::min(left, kSlice) : left;
    const int ready = poll(polled.data(), polled.size(), static_cast<int>(wait));
    if (ready < 0 && errno != EINTR) return false;
    if (ready <= 0) continue;
    exited = polled[0].revents != 0;
    if (polled[3].revents != 0) write_some(input);
    if (polled[1].revents != 0) take_output();
    if (polled[2].revents != 0) take_errors();
    if (too_much_) return true;
  }
  running();
  return true;
}

bool ChildProcess::running() {
  // Bounded, since children that go on may write for ever.
  constexpr int kReads = 16;
  pollfd exited{exit_.get(), POLLIN, 0};
  const bool runs = pid_ != 0 && poll(&exited, 1, 0) == 0;
  for (int i = 0; i < kReads && out_.get() >= 0; ++i) take_output();
  for (int i = 0; i < kReads && err_.get() >= 0; ++i) take_errors();
  return runs;
}

std::string ChildProcess::last_error() const {
  constexpr size_t kMostShown = 300;
  std::string_view line = trimmed(errors_);
  if (const size_t end = line.rfind('\n'); end != std::string_view::npos) line.remove_prefix(end + 1);
  return line.empty() ? "" : printable(line, kMostShown);
}

std::string ChildProcess::ending() const {
  const std::string how = WIFSIGNALED(status_) ? "was ended by signal " + std::to_string(WTERMSIG(status_))
                                               : "ended with exit status " + std::to_string(WEXITSTATUS(status_));
  const std::string line = last_error();
  return line.empty() ? how : how + ": " + line;
}

}  // namespace motley::envs
