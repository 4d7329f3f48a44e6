// CAF's port with a key file: who holds it is let in, who does not is not, and what strangers do harms nobody.
#include <caf/all.hpp>
#include <catch2/catch.hpp>

#include "actors/messages.h"
#include "actors/system.h"

namespace motley::actors {
namespace {

using Catch::Contains;
using KeysPtr = std::shared_ptr<const Keys>;

caf::behavior echo(caf::event_based_actor*) {
  return {[](StopRun) { return StopRun{}; }};
}

SystemOptions options(KeysPtr keys) { return {.threads = 1, .network = true, .keys = std::move(keys)}; }

/// A system with an actor that others can reach at a port of loopback.
struct Listener {
  explicit Listener(KeysPtr keys) : config(options(keys)), system(config) {
    caf::actor actor = system.spawn(echo);
    port = publish_actor(system, actor, 0, "127.0.0.1", keys != nullptr);
    published = actor.id();
    system.registry().put(published, actor);
  }
  ~Listener() {
    caf::anon_send_exit(caf::actor_cast<caf::actor>(system.registry().get(published)), caf::exit_reason::user_shutdown);
    system.registry().erase(published);
  }
  SystemConfig config;
  caf::actor_system system;
  uint16_t port = 0;
  caf::actor_id published = 0;
};

/// What comes of connecting and asking: empty, or CAF's words.
std::string ask(KeysPtr keys, uint16_t port, std::chrono::milliseconds limit) {
  SystemConfig config(options(keys));
  caf::actor_system system(config);
  caf::scoped_actor self(system);
  std::string failure;
  caf::actor peer;
  self->request(connector(system, keys != nullptr), limit, caf::connect_atom_v, std::string("127.0.0.1"), port)
      .receive([&](const caf::node_id&, const caf::strong_actor_ptr& who,
                   const std::set<std::string>&) { peer = caf::actor_cast<caf::actor>(who); },
               [&](const caf::error& error) { failure = system.render(error); });
  if (!failure.empty()) return failure;
  self->request(peer, limit, StopRun{})
      .receive([](StopRun) {}, [&](const caf::error& error) { failure = system.render(error); });
  return failure;
}

}  // namespace

TEST_CASE("TLS lets in the holder of the key file, and nobody else") {
  const auto keys = std::make_shared<const Keys>(make_keys()), others = std::make_shared<const Keys>(make_keys());
  constexpr std::chrono::seconds kLimit(5);
  const Listener listener(keys);
  CHECK(ask(keys, listener.port, kLimit).empty());
  CHECK_FALSE(ask(others, listener.port, kLimit).empty());
  CHECK_FALSE(ask(nullptr, listener.port, kLimit).empty());
  CHECK(ask(keys, listener.port, kLimit).empty());
  const Listener open(nullptr);
  CHECK(ask(nullptr, open.port, kLimit).empty());
  CHECK_FALSE(ask(keys, open.port, kLimit).empty());
}

TEST_CASE("an address that cannot be listened on is named with the system's reason") {
  const Listener first(nullptr);
  caf::scoped_actor self(const_cast<Listener&>(first).system);
  const auto attempt = [&](const std::string& host, uint16_t port) {
    return publish_actor(self->system(), caf::actor_cast<caf::actor>(self), port, host, false);
  };
  CHECK_THROWS_WITH(attempt("127.0.0.1", first.port),
                    Contains("127.0.0.1:" + std::to_string(first.port)) && Contains("Address already in use"));
  CHECK_THROWS_WITH(attempt("203.0.113.7", 0), Contains("203.0.113.7:0") && Contains("Cannot assign"));
}

}  // namespace motley::actors
