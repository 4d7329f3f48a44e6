// The one place that knows CAF's options and its default behaviour: how a system is configured, what an actor does with
// an exception or an unknown message, and how the cause of a death reads.
#pragma once

#include <caf/all.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "actors/security/addresses.h"
#include "actors/security/doorkeeper.h"
#include "actors/security/keys.h"
#include "actors/security/memory_file.h"

namespace motley::actors {

struct SystemOptions {
  int64_t threads = 2;                  // scheduler's workers; detached actors have threads of their own
  bool network = false;                 // load the middleman, for actors in other processes
  std::chrono::seconds lost_after{10};  // without a sign of life a peer elsewhere is lost; at least 3
  std::shared_ptr<const Keys> keys;     // with them: also TLS, for those alone who hold the same key file
  DoorLimits door{};                    // when connections are ended that nobody speaks through
};

class SystemConfig : public caf::actor_system_config {
 public:
  /// Throws KeyError for keys that cannot be used.
  explicit SystemConfig(const SystemOptions& options = {});
  /// Of a system with a network.
  Doorkeeper& doorkeeper() const { return *doorkeeper_; }

 private:
  void load_tls(const Keys& keys);
  std::unique_ptr<MemoryFile> certificate_, private_key_;  // CAF reads them again for every connection
  std::unique_ptr<Doorkeeper> doorkeeper_;
  std::jthread watch_;  // outlives the system, which may wait for a connection while it ends
};

/// Lets others reach `actor` at an IP address of this machine; port 0: any. Returns the port. With `secured`, over
/// mutual TLS, for a system that has keys. Throws AddressError with the address and the system's reason. Blocks.
uint16_t publish_actor(caf::actor_system& system, const caf::actor& actor, uint16_t port, const std::string& address,
                       bool secured);

/// Takes `connect_atom, std::string host, uint16_t port` and answers `node_id, strong_actor_ptr, std::set<std::string>`
/// or an error, for this port alone; to be sent as a request with a limit, after why_unreachable has found the way
/// free. The pointer is null where two processes have one node id (CAF makes it of the machine and the process id,
/// which containers may share).
caf::actor connector(caf::actor_system& system, bool secured, uint16_t port);

/// To be called first by every actor: an exception, or a message that it does not know, ends the actor with an error
/// that carries the text; its monitors get it as the reason. Nothing goes to stdout.
void install_handlers(caf::scheduled_actor* self);
/// The text of an exception of install_handlers; otherwise CAF's own words.
std::string cause_text(caf::actor_system& system, const caf::error& reason);

/// Every request between actors has this limit unless its call says otherwise.
inline constexpr std::chrono::seconds kRequestLimit{60};
/// How long a fleet may take to end after the run before the process gives up on it.
inline constexpr std::chrono::seconds kShutdownLimit{60};

}  // namespace motley::actors
