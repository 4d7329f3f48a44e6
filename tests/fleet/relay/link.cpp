#include "tests/fleet/relay/link.h"

#include <sys/socket.h>

#include <cerrno>

namespace motley::fleet {

using Mode = Conditions::Mode;

Link::Link(size_t port, Descriptor client, Descriptor server)
    : port_(port), sockets_{std::move(client), std::move(server)} {}

pollfd Link::interest(size_t side, const PortConditions& conditions, RelayClock::time_point now) const {
  const size_t other = 1 - side;
  short events = 0;
  if (!ended_[side] && conditions[side].mode != Mode::stall && (abandoned_ || lossy_[side] || from_[side].room()))
    events |= POLLIN;
  if (conditions[other].mode == Mode::forward && !from_[other].empty() && from_[other].due(conditions[other]) <= now)
    events |= POLLOUT;
  // Without events a poll still reports a broken connection, at once and again and again: that is for another time.
  return {events == 0 ? -1 : sockets_[side].get(), events, 0};
}

RelayClock::time_point Link::wakes(const PortConditions& conditions) const {
  auto first = RelayClock::time_point::max();
  for (size_t side = 0; side < 2; ++side)
    if (conditions[side].mode == Mode::forward && !from_[side].empty())
      first = std::min(first, from_[side].due(conditions[side]));
  return first;
}

void Link::serve(size_t side, short events, PortConditions& conditions, std::array<uint64_t, 2>& forwarded) {
  const size_t other = 1 - side;
  if (sockets_[side].open() && (events & POLLOUT) != 0) write_to(side, conditions[other], forwarded[other]);
  if (sockets_[side].open() && (events & (POLLIN | POLLHUP | POLLERR)) != 0) read_from(side, conditions[side]);
  close_when_done();
}

void Link::read_from(size_t side, Conditions& conditions) {
  char bytes[65536];
  const ssize_t count = ::recv(sockets_[side].get(), bytes, sizeof bytes, MSG_DONTWAIT);
  if (count < 0) {
    if (errno != EAGAIN && errno != EINTR) broken(side, conditions.mode == Mode::forward);
    return;
  }
  if (abandoned_) {
    if (count == 0) sockets_[side].close();
    return;
  }
  lossy_[side] = lossy_[side] || conditions.mode == Mode::drop;
  if (count == 0) {
    ended_[side] = true;
    return;
  }
  if (!lossy_[side]) from_[side].add(bytes, static_cast<size_t>(count), RelayClock::now() + conditions.delay);
}

void Link::write_to(size_t side, Conditions& conditions, uint64_t& forwarded) {
  const size_t other = 1 - side;
  if (from_[other].empty()) return;
  const auto [bytes, count] = from_[other].front(conditions);
  const ssize_t sent = ::send(sockets_[side].get(), bytes, count, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0) {
    if (errno != EAGAIN && errno != EINTR && errno != ENOTCONN) broken(side, true);
    return;
  }
  from_[other].sent(static_cast<size_t>(sent), conditions, RelayClock::now());
  forwarded += static_cast<uint64_t>(sent);
}

void Link::broken(size_t side, bool passed_on) {
  if (passed_on && !abandoned_) {
    reset();
  } else {
    sockets_[side].close();
  }
}

void Link::close_when_done() {
  for (size_t side = 0; side < 2; ++side) {
    const size_t other = 1 - side;
    // An end that came while bytes were lost is lost with them.
    if (!ended_[side] || told_[side] || lossy_[side] || !from_[side].empty() || !sockets_[other].open()) continue;
    ::shutdown(sockets_[other].get(), SHUT_WR);
    told_[side] = true;
  }
  for (size_t side = 0; side < 2; ++side)
    if (ended_[side] && !sockets_[1 - side].open()) sockets_[side].close();
  if (ended_[kClient] && ended_[kServer] && from_[kClient].empty() && from_[kServer].empty())
    for (Descriptor& socket : sockets_) socket.close();
}

void Link::reset() {
  const linger at_once{.l_onoff = 1, .l_linger = 0};  // close sends a reset
  for (Descriptor& socket : sockets_) {
    if (socket.open()) ::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    socket.close();
  }
}

void Link::abandon(size_t side) {
  abandoned_ = true;
  sockets_[side].close();
  for (Traffic& traffic : from_) traffic = {};
}

}  // namespace motley::fleet
