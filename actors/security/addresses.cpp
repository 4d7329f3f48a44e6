#include "actors/security/addresses.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

namespace motley::actors {
namespace {

constexpr size_t kMostNameBytes = 253;  // RFC 1035, 2.3.4

bool is_control(char c) { return static_cast<unsigned char>(c) <= ' ' || c == '\x7f'; }

[[noreturn]] void refuse(std::string_view text, const std::string& why) {
  std::string shown(text.substr(0, 300));
  std::replace_if(shown.begin(), shown.end(), is_control, '?');
  throw AddressError("'" + shown + "': " + why);
}

uint16_t port_of(std::string_view text, std::string_view port) {
  uint16_t number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (error != std::errc() || end != port.data() + port.size()) {
    refuse(text, "'" + std::string(port.substr(0, 20)) + "' is no port; allowed: HOST:PORT with a port of 0 to 65535");
  }
  return number;
}

Address split(std::string_view text) {
  // A zero byte would end the text for the C functions below.
  if (std::any_of(text.begin(), text.end(), is_control))
    refuse(text, "spaces and control characters are no part of an address");
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) refuse(text, "there is no port; allowed: HOST:PORT or [IPV6]:PORT");
  std::string_view host = text.substr(0, colon);
  const bool brackets = host.starts_with('[') && host.ends_with(']');
  if (brackets) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    refuse(text, "an IPv6 address is written in brackets: [IPV6]:PORT");
  }
  Address address{std::string(host), port_of(text, text.substr(colon + 1))};
  in6_addr six{};
  if (brackets && ::inet_pton(AF_INET6, address.host.c_str(), &six) != 1) {
    refuse(text, "what is in brackets is no IPv6 address");
  }
  return address;
}

bool is_number(const std::string& host) {
  in6_addr bytes{};
  return ::inet_pton(AF_INET, host.c_str(), &bytes) == 1 || ::inet_pton(AF_INET6, host.c_str(), &bytes) == 1;
}

bool is_name(const std::string& host) {
  const auto letter = [](char c) {
    return c == '-' || c == '.' || c == '_' || std::isalnum(static_cast<unsigned char>(c));
  };
  return !host.empty() && host.size() <= kMostNameBytes && host.front() != '-' &&
         std::find_if_not(host.begin(), host.end(), letter) == host.end();
}

using Found = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

/// Waits for a connection under way; 0 or its error.
int finish_connect(int fd, std::chrono::milliseconds limit) {
  pollfd wait{fd, POLLOUT, 0};
  const int ready = ::poll(&wait, 1, static_cast<int>(limit.count()));
  if (ready <= 0) return ready == 0 ? ETIMEDOUT : errno;
  int error = 0;
  socklen_t size = sizeof error;
  return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

/// 0 or an error of connect(2).
int try_connect(const addrinfo& to, std::chrono::milliseconds limit) {
  const int fd = ::socket(to.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  int error = ::connect(fd, to.ai_addr, to.ai_addrlen) == 0 ? 0 : errno;
  if (error == EINPROGRESS) error = finish_connect(fd, limit);
  ::close(fd);
  return error;
}

}  // namespace

bool is_loopback(const std::string& host) {
  std::array<uint8_t, 16> bytes{};
  if (::inet_pton(AF_INET, host.c_str(), bytes.data()) == 1) return bytes[0] == 127;
  if (::inet_pton(AF_INET6, host.c_str(), bytes.data()) != 1) return false;
  const auto* six = reinterpret_cast<const in6_addr*>(bytes.data());
  return IN6_IS_ADDR_LOOPBACK(six) || (IN6_IS_ADDR_V4MAPPED(six) && bytes[12] == 127);
}

Address parse_listen_address(std::string_view text, bool secured) {
  Address address = split(text);
  if (address.host.empty() || address.host == "localhost") address.host = "127.0.0.1";
  if (!is_number(address.host)) {
    refuse(text,
           "an address to listen on is an IP address of this machine, 0.0.0.0 or [::] for all of them, or localhost");
  }
  if (address.port > 65535 - kPortsBeside) {
    refuse(text,
           "the three ports after it are taken too, so that it is at most " + std::to_string(65535 - kPortsBeside));
  }
  if (!secured && !is_loopback(address.host)) {
    refuse(text, "listening on " + address.host +
                     " needs a key: motley keygen fleet.key, then --key fleet.key on both sides");
  }
  return address;
}

Address parse_join_address(std::string_view text) {
  Address address = split(text);
  if (address.host.empty()) refuse(text, "there is no host; allowed: HOST:PORT or [IPV6]:PORT");
  if (!is_number(address.host) && !is_name(address.host)) refuse(text, "the host is no IP address and no name");
  if (address.port == 0) refuse(text, "port 0 is none to connect to");
  return address;
}

std::string address_text(const Address& address) {
  const bool six = address.host.find(':') != std::string::npos;
  return (six ? "[" + address.host + "]" : address.host) + ":" + std::to_string(address.port);
}

std::string zmq_endpoint(const Address& address) {
  if (address.port != 0) return "tcp://" + address_text(address);
  const std::string text = address_text(address);
  return "tcp://" + text.substr(0, text.size() - 1) + "*";
}

std::string why_unreachable(const Address& address, std::chrono::milliseconds limit) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end = Clock::now() + limit;
  addrinfo hint{}, *list = nullptr;
  hint.ai_socktype = SOCK_STREAM;
  const int failure = ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hint, &list);
  if (failure != 0) return "no address of " + address.host + ": " + ::gai_strerror(failure);
  const Found found(list, ::freeaddrinfo);
  int error = ETIMEDOUT;
  for (const addrinfo* one = found.get(); one != nullptr; one = one->ai_next) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    if (left.count() <= 0) break;
    error = try_connect(*one, left);
    if (error == 0) return "";
  }
  return error == ETIMEDOUT ? "no answer within " + std::to_string(limit.count()) + " ms" : std::strerror(error);
}

}  // namespace motley::actors
