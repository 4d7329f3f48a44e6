// Plain TCP sockets of tests, IPv4, blocking, each with a time limit.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

#include "tests/fleet/spawn.h"

namespace motley::fleet {

inline sockaddr_in ipv4(const std::string& host, uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (::inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) throw std::runtime_error("no IPv4 address: " + host);
  return address;
}

inline Descriptor local_socket() { return Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

inline void set_time_limit(const Descriptor& socket, int milliseconds) {
  const timeval limit{.tv_sec = milliseconds / 1000, .tv_usec = (milliseconds % 1000) * 1000};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

/// 0, or the errno; EINPROGRESS past the limit.
inline int connect_to(const Descriptor& socket, const std::string& host, uint16_t port, int milliseconds = 2000) {
  set_time_limit(socket, milliseconds);
  const sockaddr_in address = ipv4(host, port);
  return ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
}

struct Listener {
  explicit Listener(const std::string& host = "127.0.0.1", Descriptor made = local_socket()) : socket(std::move(made)) {
    sockaddr_in address = ipv4(host, 0);
    socklen_t size = sizeof address;
    auto* const plain = reinterpret_cast<sockaddr*>(&address);
    if (::bind(socket.get(), plain, size) != 0 || ::listen(socket.get(), 16) != 0 ||
        ::getsockname(socket.get(), plain, &size) != 0)
      throw std::runtime_error("listen on " + host + ": " + std::strerror(errno));
    port = ntohs(address.sin_port);
    set_time_limit(socket, 2000);
  }
  Descriptor accept() const {
    Descriptor made(::accept4(socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!made.open()) throw std::runtime_error(std::string("accept: ") + std::strerror(errno));
    set_time_limit(made, 2000);
    return made;
  }
  Descriptor socket;
  uint16_t port = 0;
};

inline void send_all(const Descriptor& socket, const std::string& bytes) {
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t count = ::send(socket.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count <= 0) throw std::runtime_error(std::string("send: ") + std::strerror(errno));
    sent += static_cast<size_t>(count);
  }
}

/// Exactly `count` bytes, or fewer where the other side ends, or an error or the time limit comes first (then `error`
/// is the errno; EAGAIN for the limit).
inline std::string receive(const Descriptor& socket, size_t count, int* error = nullptr) {
  std::string bytes(count, '\0');
  size_t got = 0;
  if (error) *error = 0;
  while (got < count) {
    const ssize_t part = ::recv(socket.get(), bytes.data() + got, count - got, 0);
    if (part < 0 && error) *error = errno;
    if (part <= 0) break;
    got += static_cast<size_t>(part);
  }
  bytes.resize(got);
  return bytes;
}

/// The errno of the next receive; 0 for the end of the connection or a byte. At most `milliseconds`.
inline int error_within(const Descriptor& socket, int milliseconds) {
  set_time_limit(socket, milliseconds);
  int error = 0;
  receive(socket, 1, &error);
  return error;
}

}  // namespace motley::fleet
