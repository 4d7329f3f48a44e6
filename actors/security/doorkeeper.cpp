#include "actors/security/doorkeeper.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace motley::actors {
namespace {

/// A connection of this process, held open by a descriptor of our own, so that no number can come to mean another
/// socket.
class Held {
 public:
  explicit Held(int fd) : fd_(fd) {}
  Held(Held&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Held& operator=(Held&&) = delete;
  ~Held() {
    if (fd_ >= 0) ::close(fd_);
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

bool is_socket(int fd) {
  struct stat about {};
  return ::fstat(fd, &about) == 0 && S_ISSOCK(about.st_mode);
}

/// Of this end (getsockname) or the other (getpeername); 0: none.
uint16_t port_by(int (*name)(int, sockaddr*, socklen_t*), int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (name(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  if (address.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return 0;
}

/// Bytes that have come through an accepted connection; nothing for all else, and on kernels before 4.1.
std::optional<uint64_t> received_bytes(int fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  int listens = 0;
  socklen_t flag = sizeof listens;
  if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &flag) != 0 || listens != 0) return {};
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return {};
  if (size < offsetof(tcp_info, tcpi_bytes_received) + sizeof info.tcpi_bytes_received) return {};
  return info.tcpi_bytes_received;
}

/// Descriptors of this process.
std::vector<int> descriptors() {
  std::vector<int> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), ::closedir);
  while (const dirent* entry = folder ? ::readdir(folder.get()) : nullptr) {
    char* end = nullptr;
    const long fd = std::strtol(entry->d_name, &end, 10);
    if (end != entry->d_name) found.push_back(static_cast<int>(fd));
  }
  return found;
}

ino_t inode(int fd) {
  struct stat about {};
  return ::fstat(fd, &about) == 0 ? about.st_ino : 0;
}

}  // namespace

void Doorkeeper::watch_listening(uint16_t port, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  listening_[port] = bytes;
}

void Doorkeeper::watch_dialed(uint16_t port, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  dialed_[port] = bytes;
}

uint64_t Doorkeeper::handshake_bytes(int fd) const {
  if (!is_socket(fd)) return 0;
  const auto here = listening_.find(port_by(::getsockname, fd));
  if (here != listening_.end()) return here->second;
  const auto there = dialed_.find(port_by(::getpeername, fd));
  return there != dialed_.end() ? there->second : 0;
}

bool Doorkeeper::overdue(Connection& connection, uint64_t bytes, uint64_t handshake, Clock::time_point now) const {
  connection.greeted = connection.greeted || bytes >= handshake;
  if (!connection.greeted) return now - connection.since >= limits_.handshake;
  if (now - connection.window < limits_.silence) return false;
  const uint64_t came = bytes - connection.window_bytes;
  connection.window = now;
  connection.window_bytes = bytes;
  return came < limits_.silence_bytes;
}

size_t Doorkeeper::look(Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  struct Stranger {
    Clock::time_point since;
    int fd;
    Connection* connection;
  };
  std::vector<Stranger> strangers;
  std::vector<int> ended;
  std::map<ino_t, Connection> open;
  std::vector<Held> held;
  // First all of them, then the duplicates, whose numbers would be looked at as well.
  std::vector<int> watched = descriptors();
  std::erase_if(watched, [this](int fd) { return handshake_bytes(fd) == 0; });
  for (const int fd : watched) {
    Held one(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    // Asked again, of what is held: the number may have come to mean another.
    const uint64_t handshake = one.fd() >= 0 ? handshake_bytes(one.fd()) : 0;
    const std::optional<uint64_t> bytes = handshake != 0 ? received_bytes(one.fd()) : std::nullopt;
    if (!bytes) continue;
    const auto known = connections_.find(inode(one.fd()));
    Connection& connection = open[inode(one.fd())] = known != connections_.end() ? known->second : Connection{now, now};
    if (connection.ended) continue;  // and not closed yet by its owner
    if (overdue(connection, *bytes, handshake, now)) {
      ended.push_back(one.fd());
      connection.ended = true;
    } else if (!connection.greeted) {
      strangers.push_back({connection.since, one.fd(), &connection});
    }
    held.push_back(std::move(one));
  }
  std::sort(strangers.begin(), strangers.end(), [](const auto& a, const auto& b) { return a.since < b.since; });
  for (size_t i = 0; i + limits_.strangers < strangers.size(); ++i) {
    ended.push_back(strangers[i].fd);
    strangers[i].connection->ended = true;
  }
  for (const int fd : ended) ::shutdown(fd, SHUT_RDWR);
  connections_ = std::move(open);
  return ended.size();
}

void raise_descriptor_limit(uint64_t files) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= files) return;
  limit.rlim_cur = std::min<rlim_t>(files, limit.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace motley::actors
