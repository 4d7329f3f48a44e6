#include "envs/reward_program.h"

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
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <vector>

#include "envs/sandbox/keeper.h"
#include "envs/utf8.h"

namespace motley::envs {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostOutput = 4096;  // bytes of stdout, and of stderr's end

[[noreturn]] void fail(const std::string& what) { throw RewardProgramError("the reward program " + what); }

struct Pipe {
  Descriptor read, write;
};
Pipe make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) fail(std::string("cannot be started: ") + std::strerror(errno));
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

/// A process that leads a group, and our ends of its streams. All of the group ends with the object.
class Child {
 public:
  Child(const std::string& command, double seconds);
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() { end(); }

  /// Writes and reads until the process has ended; false: not before the deadline.
  bool talk(std::string_view input, Clock::time_point deadline);
  /// Kills what is left, and gives the status of waitpid. The group's number cannot be another's before its leader was
  /// waited for.
  int end();

  std::string output, errors;
  bool too_much = false;  // output

 private:
  void write_some(std::string_view& input);
  static bool read_some(Descriptor& from, std::string& to);

  pid_t pid_ = 0;
  int status_ = 0;
  Descriptor input_, output_, errors_, exit_;
};

/// timeout(1) stands between, so that nothing runs for ever where motley itself was killed.
Child::Child(const std::string& command, double seconds) {
  Pipe in = make_pipe(), out = make_pipe(), err = make_pipe();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.read.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out.write.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err.write.get(), STDERR_FILENO);
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
  constexpr double kGrace = 1.0;
  std::vector<std::string> words{"timeout", "--signal=KILL", std::to_string(seconds + kGrace), "sh", "-c", command};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const int error = posix_spawnp(&pid_, arguments[0], &actions, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    pid_ = 0;
    fail(std::string("cannot be started: ") + std::strerror(error));
  }
  input_ = std::move(in.write);
  output_ = std::move(out.read);
  errors_ = std::move(err.read);
  exit_ = Descriptor(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  if (exit_.get() < 0) {
    end();
    fail(std::string("cannot be watched: ") + std::strerror(errno));
  }
  for (const int ours : {input_.get(), output_.get(), errors_.get()}) fcntl(ours, F_SETFL, O_NONBLOCK);
}

int Child::end() {
  if (pid_ == 0) return status_;
  kill(-pid_, SIGKILL);
  while (waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
  }
  pid_ = 0;
  return status_;
}

/// A program that has read enough, or nothing, is no error.
void Child::write_some(std::string_view& input) {
  const ssize_t written = write(input_.get(), input.data(), input.size());
  if (written > 0) input.remove_prefix(static_cast<size_t>(written));
  if (input.empty() || (written < 0 && errno != EAGAIN && errno != EINTR)) input_.reset();
}

/// What there is now; false at the end.
bool Child::read_some(Descriptor& from, std::string& to) {
  std::array<char, kMostOutput> block;
  const ssize_t got = read(from.get(), block.data(), block.size());
  if (got > 0) to.append(block.data(), static_cast<size_t>(got));
  return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

bool Child::talk(std::string_view input, Clock::time_point deadline) {
  bool exited = false;
  while (!exited) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    std::array<pollfd, 4> polled{{{exit_.get(), POLLIN, 0},
                                  {output_.get(), POLLIN, 0},
                                  {errors_.get(), POLLIN, 0},
                                  {input_.get(), POLLOUT, 0}}};  // -1: closed, and passed over
    if (poll(polled.data(), polled.size(), static_cast<int>(left)) < 0 && errno != EINTR) return false;
    exited = polled[0].revents != 0;
    if (polled[3].revents != 0) write_some(input);
    if (polled[1].revents != 0 && !read_some(output_, output)) output_.reset();
    if (polled[2].revents != 0 && !read_some(errors_, errors)) errors_.reset();
    too_much = too_much || output.size() > kMostOutput;
    if (too_much) return true;
    if (errors.size() > 2 * kMostOutput) errors.erase(0, errors.size() - kMostOutput);
  }
  // What it wrote before it ended; children that go on are not waited for.
  constexpr int kReads = 16;
  for (int i = 0; i < kReads && output_.get() >= 0 && read_some(output_, output); ++i) {
  }
  for (int i = 0; i < kReads && errors_.get() >= 0 && read_some(errors_, errors); ++i) {
  }
  too_much = output.size() > kMostOutput;
  return true;
}

std::string_view trimmed(std::string_view text) {
  const std::string_view blanks = " \t\r\n";
  const size_t first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

std::string last_line(std::string_view errors) {
  constexpr size_t kMostShown = 300;
  std::string_view line = trimmed(errors);
  if (const size_t end = line.rfind('\n'); end != std::string_view::npos) line.remove_prefix(end + 1);
  return line.empty() ? "" : ": " + printable(line, kMostShown);
}

std::string seconds_text(double seconds) {
  std::array<char, 32> text;
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), seconds).ptr};
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

}  // namespace

double RewardProgram::score(std::string_view json) const {
  const NoBrokenPipe guard;
  const auto deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds_));
  Child child(command_, seconds_);
  const bool in_time = child.talk(json, deadline);
  const int status = child.end();
  const std::string line = last_line(child.errors);
  if (!in_time) fail("took longer than " + seconds_text(seconds_) + " s and was killed" + line);
  if (child.too_much) fail("printed more than " + std::to_string(kMostOutput) + " bytes");
  if (WIFSIGNALED(status)) fail("was ended by signal " + std::to_string(WTERMSIG(status)) + line);
  if (WEXITSTATUS(status) != 0) fail("ended with exit status " + std::to_string(WEXITSTATUS(status)) + line);
  const std::string_view text = trimmed(child.output);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  constexpr size_t kMostShown = 100;
  if (text.empty()) fail("printed nothing; it must print a number from 0 to 1" + line);
  if (error != std::errc() || end != text.data() + text.size() || !(number >= 0 && number <= 1))
    fail("printed \"" + printable(text, kMostShown) + "\"; it must print a number from 0 to 1" + line);
  return number;
}

}  // namespace motley::envs
