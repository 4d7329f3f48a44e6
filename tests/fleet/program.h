// A program of a test, on a machine of its own or on this one, with its output in files.
#pragma once

#include <signal.h>

#include <string>
#include <vector>

#include "tests/fleet/deadline.h"
#include "tests/fleet/network.h"
#include "tests/temporary_folder.h"

namespace motley::fleet {

class Program {
 public:
  /// stdout and stderr go to <folder>/<name>.out and <name>.err, emptied before; it runs in the folder. `machine` must
  /// outlive it; none: no network of its own.
  Program(const TemporaryFolder& folder, std::string name, std::vector<std::string> words,
          const Machine* machine = nullptr);
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program();  // with SIGKILL where it still runs
  /// Nothing once it has ended.
  void signal(int number) const;
  bool running();
  pid_t pid() const { return child_; }  // 0 once it has been seen to have ended
  /// Its exit code, or 128 + the number of the signal that ended it. Throws std::runtime_error with the end of its log
  /// where it has not ended in time.
  int wait(Seconds limit);
  std::string out() const { return folder_.read(name_ + ".out"); }
  std::string log() const { return folder_.read(name_ + ".err"); }
  std::string log_end() const;  // the last 4,000 bytes
  /// Waits until the log holds `text` at least `times` times. Throws as wait() does, also where the program ends first.
  void wait_for_log(const std::string& text, Seconds limit, int times = 1);
  /// To its standard input.
  void write_line(const std::string& line) const;

 private:
  const TemporaryFolder& folder_;
  const std::string name_;
  Descriptor input_;
  pid_t child_ = 0;
  int status_ = 0;
};

/// How often `part` occurs in `text`.
int occurrences(const std::string& text, const std::string& part);

}  // namespace motley::fleet
