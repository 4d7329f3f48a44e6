// CAF's port with a key file: who holds it is let in, who does not is not, and what strangers do harms nobody.
#include <caf/all.hpp>
#include <catch2/catch.hpp>

#include "actors/messages.h"
#include "actors/system.h"
#include "tests/actors/strangers.h"

namespace motley::actors {
namespace {

using Catch::Contains;
using KeysPtr = std::shared_ptr<const Keys>;

caf::behavior echo(caf::event_based_actor*) {
  return {[](StopRun) { return StopRun{}; }};
}

SystemOptions options(KeysPtr keys, DoorLimits door = {}) {
  return {.threads = 1, .network = true, .keys = std::move(keys), .door = door};
}

/// A system with an actor that others can reach at a port of loopback.
struct Listener {
  explicit Listener(KeysPtr keys, DoorLimits door = {}) : config(options(keys, door)), system(config) {
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

/// A port of loopback where connections come about and nobody reads.
struct SilentPort {
  SilentPort() : listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    REQUIRE(::bind(listener, reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(::listen(listener, 8) == 0);
    REQUIRE(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    port = ntohs(address.sin_port);
  }
  ~SilentPort() { ::close(listener); }
  SilentPort(const SilentPort&) = delete;
  SilentPort& operator=(const SilentPort&) = delete;
  int listener;
  uint16_t port = 0;
};

/// What comes of connecting and asking: empty, or CAF's words.
std::string ask(KeysPtr keys, uint16_t port, std::chrono::milliseconds limit, DoorLimits door = {}) {
  SystemConfig config(options(keys, door));
  caf::actor_system system(config);
  caf::scoped_actor self(system);
  std::string failure;
  caf::actor peer;
  self->request(connector(system, keys != nullptr, port), limit, caf::connect_atom_v, std::string("127.0.0.1"), port)
      .receive([&](const caf::node_id&, const caf::strong_actor_ptr& who,
                   const std::set<std::string>&) { peer = caf::actor_cast<caf::actor>(who); },
               [&](const caf::error& error) { failure = system.render(error); });
  if (!failure.empty()) return failure;
  self->request(peer, limit, StopRun{})
      .receive([](StopRun) {}, [&](const caf::error& error) { failure = system.render(error); });
  return failure;
}

/// Whether one comes in who tries again, as samplers do: with limits as short as a test's, a busy machine may take a
/// peer for a stranger.
bool comes_in(const KeysPtr& keys, uint16_t port) {
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    const std::string failure = ask(keys, port, std::chrono::seconds(2));
    if (failure.empty()) return true;
    const auto waited = std::chrono::steady_clock::now() - start;
    UNSCOPED_INFO("after " << std::chrono::duration<double>(waited).count() << " s: " << failure);
    if (waited > std::chrono::seconds(15)) return false;
  }
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

TEST_CASE("strangers by the hundred at CAF's port are cut off, and the fleet's own come in meanwhile") {
  const auto keys = std::make_shared<const Keys>(make_keys());
  // The beginning of TLS 1.3's first message, and of CAF's.
  const std::string tls("\x16\3\1\0\xc8\1\0\0\xc4\3\3half", 15), caf("\1\0\0\0", 4);
  const size_t before = open_descriptors();
  {
    const DoorLimits limits{.handshake = std::chrono::milliseconds(500)};
    const Listener plain(nullptr, limits), secured(keys, limits);
    Strangers at_plain(plain.port), at_secured(secured.port);
    const auto crowd = [](Strangers& strangers, int count, const std::string& half) {
      strangers.open(count, "");
      strangers.open(count, half);
      strangers.open(count / 2, "GET / HTTP/1.1\r\n\r\n");
      strangers.open(count / 2, std::string(2000, '\xff'));
    };
    crowd(at_plain, 100, caf);
    crowd(at_secured, 40, tls);  // each costs the milliseconds of a TLS context
    CHECK(comes_in(nullptr, plain.port));
    CHECK(comes_in(keys, secured.port));
    CHECK(at_plain.all_closed_within(std::chrono::seconds(3)));
    CHECK(at_secured.all_closed_within(std::chrono::seconds(3)));
    CHECK(comes_in(nullptr, plain.port));
    CHECK(comes_in(keys, secured.port));
  }
  CHECK(open_descriptors() == before);
}

TEST_CASE("a peer that accepts and never answers costs the limit, and no more") {
  const SilentPort silent;
  constexpr std::chrono::milliseconds kLimit(200);
  CHECK(why_unreachable({"127.0.0.1", silent.port}, kLimit).empty());
  for (const KeysPtr& keys : {KeysPtr(), std::make_shared<const Keys>(make_keys())}) {
    const auto start = std::chrono::steady_clock::now();
    CHECK_THAT(ask(keys, silent.port, kLimit, {.handshake = kLimit}), Contains("timeout"));
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(3));
  }
  // One whose queue is full takes no connection at all, as behind a firewall that drops packets.
  Strangers queue(silent.port);
  queue.fill();
  CHECK_THAT(why_unreachable({"127.0.0.1", silent.port}, kLimit), Contains("no answer within 200 ms"));
  CHECK_THAT(why_unreachable({"127.0.0.1", 1}, kLimit), Contains("refused"));
  CHECK_THAT(why_unreachable({"no-such-host.invalid", 1}, kLimit), Contains("no address of no-such-host.invalid"));
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
