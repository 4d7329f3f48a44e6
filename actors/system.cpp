#include "actors/system.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <caf/io/all.hpp>
#include <caf/openssl/all.hpp>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <stdexcept>

#include "actors/messages.h"

namespace motley::actors {
namespace {

/// Why nothing can listen there, tried once more by ourselves, since CAF keeps no reason.
std::string why_not_bound(const Address& address) {
  addrinfo hint{}, *found = nullptr;
  hint.ai_socktype = SOCK_STREAM;
  hint.ai_flags = AI_NUMERICHOST | AI_PASSIVE;
  const int failure = ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hint, &found);
  if (failure != 0) return ::gai_strerror(failure);
  const int fd = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
  const bool bound = fd >= 0 && ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
                     ::bind(fd, found->ai_addr, found->ai_addrlen) == 0 && ::listen(fd, 1) == 0;
  std::string why = bound ? "it was taken a moment ago, try again" : std::strerror(errno);
  if (fd >= 0) ::close(fd);
  ::freeaddrinfo(found);
  return why;
}

constexpr uint64_t kOpenFiles = 8192;  // with room for strangers until they are put out
constexpr std::chrono::milliseconds kDoorLook{500};
constexpr std::chrono::seconds kHeartbeat{2};

void keep_door(const std::stop_token& stop, Doorkeeper& doorkeeper) {
  std::mutex mutex;
  std::condition_variable_any ended;
  for (std::unique_lock lock(mutex); !stop.stop_requested();) {
    doorkeeper.look(Doorkeeper::Clock::now());
    ended.wait_for(lock, stop, kDoorLook, [] { return false; });
  }
}

/// Of a system that was made with our configuration.
Doorkeeper& doorkeeper_of(caf::actor_system& system) {
  return dynamic_cast<const SystemConfig&>(system.config()).doorkeeper();
}

uint64_t handshake_bytes(bool secured) { return secured ? kTlsHandshakeBytes : kPlainHandshakeBytes; }

}  // namespace

SystemConfig::SystemConfig(const SystemOptions& options) {
  add_message_types<caf::id_block::motley>();
  set("scheduler.policy", caf::atom("sharing"));  // stealing polls: 10 times the round trip, 1 % idle CPU
  set("scheduler.max-threads", static_cast<size_t>(options.threads));
  if (!options.network) return;
  load<caf::io::middleman>();
  // Both are needed to notice a frozen peer; shorter heartbeats than 2 s drop connections that are shaking hands.
  set("middleman.heartbeat-interval", caf::timespan{kHeartbeat});
  set("middleman.connection-timeout", caf::timespan{options.lost_after});
  set("middleman.app-identifiers", std::vector<std::string>{"motley-1"});
  DoorLimits door = options.door;
  door.silence =
      std::max<std::chrono::milliseconds>(door.silence, options.lost_after + kHeartbeat);  // first CAF's turn
  doorkeeper_ = std::make_unique<Doorkeeper>(door);
  watch_ = std::jthread([this](const std::stop_token& stop) { keep_door(stop, *doorkeeper_); });
  if (options.keys) load_tls(*options.keys);
}

/// With a certificate set, both sides must show one that the other trusts (caf/openssl/session: SSL_VERIFY_PEER and
/// FAIL_IF_NO_PEER_CERT); the only one trusted is the key file's own.
void SystemConfig::load_tls(const Keys& keys) {
  certificate_ = std::make_unique<MemoryFile>(keys.certificate);
  private_key_ = std::make_unique<MemoryFile>(keys.certificate_private);
  openssl_certificate = openssl_cafile = certificate_->name();
  openssl_key = private_key_->name();
  load<caf::openssl::manager>();
}

uint16_t publish_actor(caf::actor_system& system, const caf::actor& actor, uint16_t port, const std::string& address,
                       bool secured) {
  if (secured && !system.has_openssl_manager()) throw std::logic_error("publish_actor: this system has no keys");
  // Reuse: a coordinator that starts again takes its port back at once, though old connections linger.
  constexpr bool kReuse = true;
  const auto published = secured ? caf::openssl::publish(actor, port, address.c_str(), kReuse)
                                 : caf::io::publish(actor, port, address.c_str(), kReuse);
  if (published) {
    doorkeeper_of(system).watch_listening(*published, handshake_bytes(secured));
    raise_descriptor_limit(kOpenFiles);
    return *published;
  }
  const Address where{address, port};
  throw AddressError("nothing can listen on " + address_text(where) + ": " + why_not_bound(where));
}

caf::actor connector(caf::actor_system& system, bool secured, uint16_t port) {
  doorkeeper_of(system).watch_dialed(port, handshake_bytes(secured));
  return secured ? caf::actor_cast<caf::actor>(system.openssl_manager().actor_handle())
                 : caf::actor_cast<caf::actor>(system.middleman().actor_handle());
}

void install_handlers(caf::scheduled_actor* self) {
  self->set_exception_handler([](caf::scheduled_actor*, std::exception_ptr& pointer) -> caf::error {
    std::string text = "an exception that is no std::exception";
    try {
      std::rethrow_exception(pointer);
    } catch (const std::exception& error) {
      text = error.what();
    } catch (...) {
    }
    return caf::make_error(caf::sec::runtime_error, text);
  });
  self->set_default_handler([](caf::scheduled_actor* actor, caf::message_view& view) -> caf::result<caf::message> {
    const std::string text = "a message that it does not know: " + view.content().stringify();
    actor->quit(caf::make_error(caf::sec::runtime_error, text));
    return caf::make_error(caf::sec::unexpected_message, text);
  });
}

std::string cause_text(caf::actor_system& system, const caf::error& reason) {
  if (!reason) return "it ended";  // CAF's own reason of an orderly end has no context to look at
  const caf::message& context = reason.context();
  if (context.size() == 1 && context.match_element<std::string>(0)) return context.get_as<std::string>(0);
  return system.render(reason);
}

}  // namespace motley::actors
