// motley's end of the keeper (envs/sandbox/helper/keeper.h): the process that starts and clears away sandboxes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "envs/sandbox/cgroups.h"

namespace motley::envs {

/// A file descriptor that is closed with its owner.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() { reset(); }
  int get() const { return fd_; }
  void reset();

 private:
  int fd_;
};

/// Bytes as a file in memory, at its beginning. Throws SandboxError.
Descriptor memory_file(const char* name, std::string_view bytes);

/// Safe to use from several threads. Starts its process with the first order, and again should it have died.
class Keeper {
 public:
  Keeper();
  ~Keeper();
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  struct Order {
    uint64_t id = 0;
    uint32_t user = 0;  // user and group to become first; 0: stay
    CgroupOrder cgroups;
    std::vector<std::string> arguments;  // the program's path first
    std::vector<int> descriptors;        // the first becomes standard error, the others 3, 4, ...
  };
  /// Copies of the descriptors go along. The keeper closes its copy of the first when everything that the order started
  /// is gone and cleared away, and writes to it what went wrong. Throws SandboxError.
  void spawn(const Order& order);
  /// Kills a sandbox from outside.
  void end(uint64_t id);
  /// Of the helper program, to be run as another process.
  int program() const { return program_.get(); }
  pid_t pid() const { return pid_; }

 private:
  void start();
  void send(const std::string& message, const std::vector<int>& descriptors);
  bool try_send(const std::string& message, const std::vector<int>& descriptors) const;
  std::mutex mutex_;
  Descriptor program_, socket_;
  pid_t pid_ = 0;
};

}  // namespace motley::envs
