#include "tests/fleet/relay/relay.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <stdexcept>

namespace motley::fleet {
namespace {

sockaddr_in address_of(const std::string& host, uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (::inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1)
    throw std::runtime_error("\"" + host + "\" is no IPv4 address");
  return address;
}
const sockaddr* plain(const sockaddr_in& address) { return reinterpret_cast<const sockaddr*>(&address); }

Descriptor tcp_socket() {
  Descriptor made(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!made.open()) throw std::runtime_error(std::string("socket: ") + std::strerror(errno));
  return made;
}

void send_at_once(const Descriptor& socket) {
  const int yes = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

}  // namespace

Relay::Relay(const RelayOptions& options) : options_(options), conditions_(options.ports.size()) {
  if (options.ports.empty() || options.ports.size() != options.to_ports.size())
    throw std::runtime_error("as many ports to listen on as to forward to, and at least one");
  (void)address_of(options.to, 0);
  for (const uint16_t port : options.ports) {
    Descriptor listener = tcp_socket();
    const int yes = 1;
    ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    sockaddr_in address = address_of(options.listen, port);
    socklen_t size = sizeof address;
    if (::bind(listener.get(), plain(address), size) != 0 || ::listen(listener.get(), 128) != 0 ||
        ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
      throw std::runtime_error(options.listen + ":" + std::to_string(port) + ": " + std::strerror(errno));
    ports_.push_back(ntohs(address.sin_port));
    listeners_.push_back(std::move(listener));
  }
}

void Relay::run() {
  while (poll_once()) continue;
}

bool Relay::poll_once() {
  std::vector<pollfd> polled{{STDIN_FILENO, POLLIN, 0}};
  for (const Descriptor& listener : listeners_) polled.push_back({listener.get(), POLLIN, 0});
  const auto now = RelayClock::now();
  auto wakes = RelayClock::time_point::max();
  for (const Link& link : links_) {
    const PortConditions& conditions = conditions_[link.port()];
    for (size_t side = 0; side < 2; ++side) polled.push_back(link.interest(side, conditions, now));
    if (const auto due = link.wakes(conditions); due > now) wakes = std::min(wakes, due);
  }
  int timeout = -1;
  if (wakes != RelayClock::time_point::max())
    timeout = static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(wakes - now).count());
  if (::poll(polled.data(), polled.size(), timeout) < 0 && errno != EINTR)
    throw std::runtime_error(std::string("poll: ") + std::strerror(errno));

  const size_t known = links_.size();  // those accepted below were not polled
  for (size_t port = 0; port < listeners_.size(); ++port)
    if (polled[1 + port].revents != 0) accept(port);
  size_t at = 1 + listeners_.size();
  auto link = links_.begin();
  for (size_t i = 0; i < known; ++i, at += 2) {
    for (size_t side = 0; side < 2; ++side)
      if (polled[at + side].revents != 0)
        link->serve(side, polled[at + side].revents, conditions_[link->port()], forwarded_);
    link = link->over() ? links_.erase(link) : std::next(link);
  }
  return polled[0].revents == 0 || take_input();
}

void Relay::accept(size_t port) {
  Descriptor client(::accept4(listeners_[port].get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!client.open()) return;
  Descriptor server = tcp_socket();
  send_at_once(client);
  send_at_once(server);
  const sockaddr_in address = address_of(options_.to, options_.to_ports[port]);
  // A failure shows when the socket is read.
  if (::connect(server.get(), plain(address), sizeof address) != 0 && errno != EINPROGRESS) {
    Link(port, std::move(client), std::move(server)).reset();
    return;
  }
  links_.emplace_back(port, std::move(client), std::move(server));
}

bool Relay::take_input() {
  char bytes[4096];
  const ssize_t count = ::read(STDIN_FILENO, bytes, sizeof bytes);
  if (count <= 0) return count < 0 && errno == EINTR;
  input_.append(bytes, static_cast<size_t>(count));
  for (size_t end = input_.find('\n'); end != std::string::npos; end = input_.find('\n')) {
    std::puts(command(input_.substr(0, end)).c_str());
    std::fflush(stdout);
    input_.erase(0, end + 1);
  }
  return true;
}

std::string Relay::command(const std::string& line) {
  std::istringstream words(line);
  std::string name, word, side;
  double value = 0;
  Scope scope;
  words >> name;
  if (name == "delay" || name == "rate")
    if (!(words >> value) || !std::isfinite(value) || value < 0 || value > 1e12)
      return "error: " + name + " takes a number of at least 0";
  if (name == "abandon")
    if (!(words >> side) || (side != "client" && side != "server")) return "error: abandon takes client or server";
  while (words >> word) {
    if (word == "up" || word == "down") {
      (word == "up" ? scope.down : scope.up) = false;
    } else if (word != "port" || !(words >> scope.port) || scope.port < 0 ||
               scope.port >= static_cast<int>(ports_.size())) {
      return "error: \"" + word + "\" is neither up, down nor port and its place";
    }
  }
  if (name == "count")
    return "links " + std::to_string(links_.size()) + " up " + std::to_string(forwarded_[kClient]) + " down " +
           std::to_string(forwarded_[kServer]);
  if (name == "reset" || name == "abandon") return act(name, side, scope);
  return set_conditions(name, value, scope);
}

std::string Relay::set_conditions(const std::string& name, double value, const Scope& scope) {
  for (size_t port = 0; port < conditions_.size(); ++port) {
    if (scope.port >= 0 && static_cast<size_t>(scope.port) != port) continue;
    for (const size_t side : {kClient, kServer}) {
      if (!(side == kClient ? scope.up : scope.down)) continue;
      Conditions& conditions = conditions_[port][side];
      if (name == "delay") {
        conditions.delay = std::chrono::microseconds(static_cast<int64_t>(value * 1000));
      } else if (name == "rate") {
        conditions.bytes_per_second = value;
        conditions.free_at = {};
      } else if (name == "stall") {
        conditions.mode = Conditions::Mode::stall;
      } else if (name == "drop") {
        conditions.mode = Conditions::Mode::drop;
      } else if (name == "forward") {
        conditions.mode = Conditions::Mode::forward;
      } else if (name == "clear") {
        conditions = {};
      } else {
        return "error: \"" + name + "\" is no command";
      }
    }
  }
  return "ok";
}

std::string Relay::act(const std::string& name, const std::string& side, const Scope& scope) {
  for (Link& link : links_) {
    if (scope.port >= 0 && static_cast<size_t>(scope.port) != link.port()) continue;
    if (name == "reset") {
      link.reset();
    } else {
      link.abandon(side == "client" ? kClient : kServer);
    }
  }
  links_.remove_if([](const Link& link) { return link.over(); });
  return "ok";
}

}  // namespace motley::fleet
