// The fleet's ZeroMQ sockets: who is let in, and that what strangers and careless peers send harms nobody else.
#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <optional>

#include "actors/security/sockets.h"
#include "tests/actors/strangers.h"

namespace motley::actors {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kSoon(1500), kNever(150);
constexpr int64_t kMostBytes = 4096;

/// A ROUTER that gives back what it gets, in a thread of its own.
class Echo {
 public:
  Echo(const Keys* keys, int handshake_ms = 10000) {
    if (keys != nullptr) {
      gatekeeper.emplace(context, *keys);
      secure_server(router_, *gatekeeper);
    }
    harden(router_, {.frame_bytes = kMostBytes});
    router_.set(zmq::sockopt::handshake_ivl, handshake_ms);
    router_.bind("tcp://127.0.0.1:*");
    endpoint = router_.get(zmq::sockopt::last_endpoint);
    port = static_cast<uint16_t>(std::stoi(endpoint.substr(endpoint.rfind(':') + 1)));
    thread_ = std::thread([this] { run(); });
  }
  ~Echo() {
    stop_ = true;
    thread_.join();
    router_.close();
    gatekeeper.reset();
  }

  zmq::context_t context{1};
  std::optional<Gatekeeper> gatekeeper;
  std::string endpoint;
  uint16_t port = 0;

 private:
  void run() {
    while (!stop_) {
      zmq::pollitem_t item{router_.handle(), 0, ZMQ_POLLIN, 0};
      if (zmq::poll(&item, 1, milliseconds(10)) == 0) continue;
      zmq::message_t peer, content;
      if (!router_.recv(peer) || !router_.recv(content)) continue;
      router_.send(peer, zmq::send_flags::sndmore);
      router_.send(content, zmq::send_flags::none);
    }
  }
  zmq::socket_t router_{context, zmq::socket_type::router};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

struct Client {
  explicit Client(const Echo& echo, const Keys* keys) {
    if (keys != nullptr) secure_client(dealer, *keys);
    harden(dealer);
    dealer.connect(echo.endpoint);
  }
  /// Whether the echo comes in time.
  bool ask(milliseconds limit, size_t bytes = 5) {
    dealer.send(zmq::buffer(std::string(bytes, 'x')), zmq::send_flags::dontwait);
    zmq::pollitem_t item{dealer.handle(), 0, ZMQ_POLLIN, 0};
    if (zmq::poll(&item, 1, limit) == 0) return false;
    zmq::message_t content;
    return dealer.recv(content).has_value() && content.size() == bytes;
  }
  zmq::context_t context{1};
  zmq::socket_t dealer{context, zmq::socket_type::dealer};
};

bool asks(const Echo& echo, const Keys* keys, milliseconds limit = kSoon) { return Client(echo, keys).ask(limit); }

}  // namespace

TEST_CASE("CURVE lets in the holder of the key file, and nobody else") {
  const Keys keys = make_keys(), others = make_keys();
  const Echo echo(&keys);
  CHECK(asks(echo, &keys));
  CHECK(echo.gatekeeper->admitted() == 1);
  CHECK_FALSE(asks(echo, &others, kNever));
  CHECK_FALSE(asks(echo, nullptr, kNever));
  CHECK(echo.gatekeeper->refused() == 0);
  // One who knows the public key and holds another: CURVE alone would let it in.
  Keys guest = others;
  guest.curve_public = keys.curve_public;
  Client knows(echo, nullptr);
  knows.dealer.disconnect(echo.endpoint);
  secure_client(knows.dealer, guest);
  knows.dealer.set(zmq::sockopt::curve_publickey, others.curve_public);
  knows.dealer.connect(echo.endpoint);
  CHECK_FALSE(knows.ask(kNever));
  CHECK(echo.gatekeeper->refused() > 0);
  CHECK(asks(echo, &keys));
  // The other way round: a server without the key, or with another, is not talked to.
  const Echo open(nullptr), other(&others);
  CHECK_FALSE(asks(open, &keys, kNever));
  CHECK_FALSE(asks(other, &keys, kNever));
  CHECK(asks(open, nullptr));
}

TEST_CASE("a frame beyond the limit closes its peer's connection, and no other") {
  const Keys keys = make_keys();
  for (const Keys* with : {static_cast<const Keys*>(nullptr), &keys}) {
    const Echo echo(with);
    Client careful(echo, with), careless(echo, with);
    CHECK(careful.ask(kSoon, kMostBytes / 2));
    CHECK_FALSE(careless.ask(kNever, kMostBytes + 1));
    CHECK(careful.ask(kSoon, kMostBytes / 2));
    CHECK(careless.ask(kSoon));  // it has connected again
  }
}

TEST_CASE("strangers by the hundred at a ZeroMQ port are cut off, and the fleet's own come in meanwhile") {
  const Keys keys = make_keys();
  for (const Keys* with : {static_cast<const Keys*>(nullptr), &keys}) {
    const size_t before = open_descriptors();
    {
      const Echo echo(with, 300);
      Strangers strangers(echo.port);
      // ZMTP 3.1's greeting with a mechanism, half of one, and no ZMTP at all.
      const std::string greeting = std::string("\xff\0\0\0\0\0\0\0\1\x7f\3\1", 12) + "CURVE" + std::string(47, '\0');
      strangers.open(100, "");
      strangers.open(100, greeting.substr(0, 11));
      strangers.open(50, greeting);
      strangers.open(25, "GET / HTTP/1.1\r\n\r\n");
      strangers.open(25, std::string(2000, '\xff'));
      CHECK(asks(echo, with));
      CHECK(strangers.all_closed_within(kSoon));
      CHECK(asks(echo, with));
    }
    CHECK(open_descriptors() == before);
  }
}

TEST_CASE("a hardened socket gives a handshake ten seconds, and nothing that closes waits") {
  zmq::context_t context(1);
  zmq::socket_t socket(context, zmq::socket_type::router);
  harden(socket);
  CHECK(socket.get(zmq::sockopt::handshake_ivl) == 10000);
  CHECK(socket.get(zmq::sockopt::heartbeat_ivl) == 2000);
  CHECK(socket.get(zmq::sockopt::heartbeat_timeout) == 10000);
  CHECK(socket.get(zmq::sockopt::linger) == 0);
  CHECK(socket.get(zmq::sockopt::maxmsgsize) == int64_t{16} << 20);
}

}  // namespace motley::actors
