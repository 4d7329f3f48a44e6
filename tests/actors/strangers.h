// Connections from those who are not of the fleet: they send some bytes, or none, and wait.
#pragma once

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace motley::actors {

/// Of this process.
inline size_t open_descriptors() {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

class Strangers {
 public:
  explicit Strangers(uint16_t port) {
    to_.sin_family = AF_INET;
    to_.sin_port = htons(port);
    to_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  }
  Strangers(const Strangers&) = delete;
  Strangers& operator=(const Strangers&) = delete;
  ~Strangers() {
    for (const int fd : open_) ::close(fd);
  }

  void open(int count, const std::string& bytes) {
    for (int i = 0; i < count; ++i) {
      const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      open_.push_back(fd);
      if (::connect(fd, reinterpret_cast<const sockaddr*>(&to_), sizeof to_) != 0)
        throw std::runtime_error("no connect");
      // A peer that has hung up already is what some of them are to meet.
      [[maybe_unused]] const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    }
  }
  /// As many as a listener that accepts none has room for, and more.
  void fill() {
    for (int i = 0; i < 32; ++i) {
      const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
      open_.push_back(fd);
      [[maybe_unused]] const int begun = ::connect(fd, reinterpret_cast<const sockaddr*>(&to_), sizeof to_);
    }
  }
  /// Sends more on all of them.
  void send(const std::string& bytes) {
    for (const int fd : open_)
      [[maybe_unused]] const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }

  /// Whether the peer hangs up on every one.
  bool all_closed_within(std::chrono::milliseconds limit) { return count_open_after(limit) == 0; }
  size_t count_open_after(std::chrono::milliseconds limit) {
    const auto end = std::chrono::steady_clock::now() + limit;
    size_t open = 0;
    for (const int fd : open_) open += closed_before(fd, end) ? 0 : 1;
    return open;
  }

 private:
  static bool closed_before(int fd, std::chrono::steady_clock::time_point end) {
    char bytes[4096];
    while (true) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
      pollfd wait{fd, POLLIN, 0};
      if (::poll(&wait, 1, static_cast<int>(std::max<int64_t>(left.count(), 0))) <= 0) return false;
      if (::recv(fd, bytes, sizeof bytes, 0) <= 0) return true;  // its end, or a reset
    }
  }
  sockaddr_in to_{};
  std::vector<int> open_;
};

}  // namespace motley::actors
