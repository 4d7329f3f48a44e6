// Joining a run, in whatever role: connects, says hello, stays, and comes back when the connection breaks.
#pragma once

#include "actors/messages.h"
#include "actors/remote/join.h"
#include "actors/remote/session_client.h"
#include "actors/remote/stay.h"

namespace motley::actors {

/// The run's sockets, for one stay.
struct Links {
  zmq::context_t& context;
  std::string host;
  std::function<void(zmq::socket_t&)> secure;  // for every socket, before it connects
  SessionClientOptions session;
  std::string endpoint(uint64_t port) const;
};

/// What a role brings.
struct Joining {
  Address address;
  std::shared_ptr<const Keys> keys;
  std::chrono::seconds patience{600};
  std::chrono::seconds leave_limit{30};  // for what is under way when it is to leave
  Hello hello;                           // role, and what belongs to it; the rest is filled in
  /// Throws JoinRefused.
  std::function<std::unique_ptr<Stay>(const Welcome&, const Links&)> begin;
};

/// Stays until the run is over or `stop` is set. Throws JoinRefused, what a stay says no other try would help against,
/// and std::runtime_error when its patience is at an end, or when it failed three times in a row.
JoinEnd join_run(const Joining& joining, const std::function<void(const std::string&)>& say, StopRequest& stop);

}  // namespace motley::actors
