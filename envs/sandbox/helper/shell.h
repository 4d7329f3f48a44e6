// The shell of a sandbox's session: one bash that lives from call to call, so that `cd` and variables last.
#pragma once

#include <sys/types.h>

#include <string>

#include "envs/sandbox/helper/wire.h"

namespace motley::envs {

/// Commands go in through one pipe, each ended by a NUL; statuses come out of another, as digits and a NUL; standard
/// output and error of everything that the shell starts come out of a third.
class Shell {
 public:
  /// With a command: runs that alone and ends.
  explicit Shell(const wire::Setup& limits, std::string command = {}) : limits_(limits), command_(std::move(command)) {}
  bool serves_session() const { return command_.empty(); }
  /// Starts one if none lives, in the folder of the last. False: no process could be made.
  bool start();
  bool alive() const { return pid_ > 0; }
  /// It was alive after the last call, and ended since.
  bool ended_unseen() const { return commands_ >= 0 && !alive(); }
  pid_t pid() const { return pid_; }
  int commands() const { return commands_; }
  int statuses() const { return statuses_; }
  int output() const { return output_; }
  /// Waits for children that ended, the shell among them.
  void reap();
  /// The child ended with this status of waitpid.
  void ended(pid_t pid, int status);
  /// 128 + signal, or the exit status of the shell that ended last.
  uint32_t last_status() const { return last_status_; }
  /// It was killed and waited for together with everything else.
  void was_killed() { pid_ = 0; }
  /// Remembers the folder that the shell is in, for its successor.
  void remember_folder();
  /// The shell is dead and waited for.
  void forget();

 private:
  [[noreturn]] void become_shell(int commands, int statuses, int output) const;
  wire::Setup limits_;
  std::string command_;
  std::string folder_ = wire::work_folder;
  pid_t pid_ = 0;
  int commands_ = -1, statuses_ = -1, output_ = -1;
  uint32_t last_status_ = 0;
};

}  // namespace motley::envs
