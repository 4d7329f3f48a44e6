// Sandboxes: places where a model's commands run with nothing in reach but a work tree of their own (docs/sandbox.md).
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "envs/repository/work_tree.h"
#include "envs/sandbox/cgroups.h"
#include "envs/sandbox/helper/wire.h"
#include "envs/sandbox/keeper.h"
#include "envs/sandbox/limits.h"

namespace motley::envs {

/// What all sandboxes of a process share. Safe to use from several threads; must outlive its sandboxes.
class SandboxHost {
 public:
  /// With `use_cgroups` false memory and files are watched from inside even where cgroups could be made. Clears away
  /// what dead runs left. Throws SandboxError where bubblewrap is missing.
  explicit SandboxHost(bool use_cgroups = true);
  const std::optional<Cgroups>& cgroups() const { return cgroups_; }
  Keeper& keeper() { return keeper_; }

 private:
  friend class Sandbox;
  std::string program_, filter_;
  uint32_t user_ = 0;
  std::optional<Cgroups> cgroups_;
  Keeper keeper_;
  std::atomic<uint64_t> next_id_{1};
};

struct CallResult {
  int status = 0;      // 0 to 255; 128 + signal for a command that a signal ended; 137 where the limit did
  std::string output;  // standard output and error in their order, any bytes; "[N bytes cut]" in its middle
  uint64_t cut_bytes = 0;
  double seconds = 0;
  bool timed_out = false;       // the command, the shell and all that the command started were killed
  bool new_shell = false;       // the shell ended: another goes on in the same folder, without the variables
  bool out_of_memory = false;   // something was killed for the limit on memory
  bool too_many_files = false;  // everything was killed for the limit on files
};

/// Entries by path, as a program left them: names of any bytes but NUL and '/', links to anywhere.
using FileTree = std::map<std::string, TreeEntry>;

/// One sandbox with one shell session. Every method blocks: an actor that owns a sandbox is detached, with a thread of
/// its own. One thread at a time; threads may change. The destructor leaves no process, mount, folder or cgroup.
class Sandbox {
 public:
  /// Starts it and waits until it is ready. Throws SandboxError: a limit out of range, or what the system refused.
  explicit Sandbox(SandboxHost& host, const SandboxLimits& limits = {});
  ~Sandbox();
  Sandbox(const Sandbox&) = delete;
  Sandbox& operator=(const Sandbox&) = delete;

  /// Runs a command of bash in the session's shell, with nothing on standard input. At most `seconds` (default, and
  /// most: limits.call_seconds). Throws EpisodeOver, SandboxError when the sandbox is gone for another
  /// reason, and for a command with a NUL or above 1 MiB.
  CallResult call(const std::string& command, std::optional<double> seconds = std::nullopt);

  /// The same in a bash of its own that begins in the work folder, beside the session's. Its status comes from the
  /// kernel, where the session's shell reports its own and a command could forge it: what scores uses this. What the
  /// command left running is killed when it ends.
  CallResult run(const std::string& command, std::optional<double> seconds = std::nullopt);

  /// Writes below the work folder; files that are there are replaced, links never followed. Throws SandboxError: a path
  /// that is not below it, no space, something in the way.
  void put(const FileTree& tree);
  void put(const std::string& path, const TreeEntry& entry);

  /// Ends everything that runs in the session and reads the work folder, or `folder` of it, whole. Pipes and sockets
  /// are left out. Throws TreeError when it holds more than `most_bytes` (at most 64 MiB) or than the limit on
  /// files, is more than 64 levels deep, or is not there. Nothing in the result is trusted: a WorkTree holds it to
  /// rules.
  FileTree take(const std::string& folder = "", uint64_t most_bytes = 64ULL << 20);

  /// Ends it and waits until nothing is left. True unless the system did not let go of something within 7 seconds.
  bool destroy();
  const SandboxLimits& limits() const { return limits_; }
  uint64_t id() const { return id_; }

 private:
  CallResult order(wire::Kind kind, const std::string& command, std::optional<double> seconds);
  void spawn();
  void send(const std::string& message);
  /// Waits at most so long for one message. Throws SandboxError.
  std::string receive(double seconds);
  void read_whole(char* data, size_t size, double until);
  [[noreturn]] void lost();
  void check_alive() const;
  SandboxHost& host_;
  SandboxLimits limits_;
  uint64_t id_;
  Descriptor control_, life_;
  uint64_t memory_kills_ = 0;
  bool over_ = false;  // by the time limit of the episode
};

}  // namespace motley::envs
