// A program that runs beside us, with pipes on its streams; it and all that it started end with the object.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "envs/sandbox/keeper.h"

namespace motley::envs {

/// The system started no process.
class ChildError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct ChildOptions {
  std::vector<std::string> words;  // the program, looked up in PATH, and its arguments; no shell is between
  size_t most_output = 4096;       // bytes that are kept of stdout's beginning, and about as many of stderr's end
  // The kernel kills it when the thread that starts it ends, and so with our process, however that ends. Programs that
  // it starts in turn are not killed so.
  bool bound_to_thread = false;
};

/// The leader of a process group. For one thread at a time.
class ChildProcess {
 public:
  using Clock = std::chrono::steady_clock;

  /// Returns when the program has been started; one that cannot be executed ends with exit status 127. Throws
  /// ChildError.
  explicit ChildProcess(ChildOptions options);
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  ~ChildProcess() { end(); }

  /// Writes `input` and reads until the process has ended or has written too much. False: neither before the deadline,
  /// or `cancelled`, which is asked ten times a second, said so.
  bool talk(std::string_view input, Clock::time_point deadline, const std::function<bool()>& cancelled = {});
  /// Takes what it has written, so that it never waits for a reader, and says whether it still runs.
  bool running();
  /// To all of the group; nothing once it was waited for.
  void signal(int number) const;
  /// Kills what is left of the group, and gives the status of waitpid.
  int end();

  const std::string& output() const { return output_; }
  const std::string& errors() const { return errors_; }
  bool too_much() const { return too_much_; }  // stdout held more than is kept
  /// The last line of stderr, as a message can show it; empty if there is none.
  std::string last_error() const;
  /// "ended with exit status 3: the last line of stderr", once it was waited for.
  std::string ending() const;

 private:
  struct Ends;
  void spawn(const Ends& ends);
  void write_some(std::string_view& input);
  void take_output();
  void take_errors();

  std::vector<std::string> words_;
  size_t most_output_;
  pid_t pid_ = 0;
  int status_ = 0;
  std::string output_, errors_;
  bool too_much_ = false;
  Descriptor in_, out_, err_, exit_;
};

/// Text without blanks and line ends around it.
std::string_view trimmed(std::string_view text);

}  // namespace motley::envs
