// The relay does to connections what its commands say, and nothing else.
#include <catch2/catch.hpp>
#include <thread>

#include "tests/fleet/bad_network.h"
#include "tests/fleet/sockets.h"

namespace motley::fleet {
namespace {

/// A server, the relay before it, and connections through it.
struct Relayed {
  TemporaryFolder folder;
  Listener server;
  BadNetwork relay{folder, "relay", "127.0.0.1", {0}, "127.0.0.1", {server.port}};
  struct Connection {
    Descriptor client, server;
  };
  Connection connect() {
    Connection made{local_socket(), {}};
    REQUIRE(connect_to(made.client, "127.0.0.1", relay.port(0)) == 0);
    made.server = server.accept();
    return made;
  }
};

std::string pattern(size_t count) {
  std::string bytes(count, '\0');
  uint32_t state = 1;
  for (char& byte : bytes) byte = static_cast<char>((state = state * 1664525U + 1013904223U) >> 24);
  return bytes;
}

bool passes(const Descriptor& from, const Descriptor& to, const std::string& text) {
  send_all(from, text);
  set_time_limit(to, 2000);
  return receive(to, text.size()) == text;
}

}  // namespace

TEST_CASE("a relay forwards bytes and ends of connections, on several ports") {
  const TemporaryFolder folder;
  const Listener one, two;
  BadNetwork relay(folder, "relay", "127.0.0.1", {0, 0}, "127.0.0.1", {one.port, two.port});
  const Descriptor client = local_socket(), other = local_socket();
  REQUIRE(connect_to(client, "127.0.0.1", relay.port(0)) == 0);
  REQUIRE(connect_to(other, "127.0.0.1", relay.port(1)) == 0);
  const Descriptor server = one.accept(), other_server = two.accept();
  CHECK(passes(other, other_server, "to the second port"));
  const std::string bytes = pattern(3 << 20);
  std::string back;
  std::thread sender([&] { send_all(client, bytes), ::shutdown(client.get(), SHUT_WR); });
  const bool equal = receive(server, bytes.size()) == bytes;
  sender.join();
  CHECK(equal);
  CHECK(receive(server, 1).empty());  // the end, not the limit
  CHECK(error_within(server, 100) == 0);
  CHECK(passes(server, client, "the other half is still open"));
  CHECK(relay.command("count") == "links 2 up " + std::to_string(bytes.size() + 18) + " down 28");
}

TEST_CASE("a relay's delay and rate") {
  Relayed net;
  const auto connection = net.connect();
  CHECK(passes(connection.client, connection.server, "soon"));
  net.relay.command("delay 60 up");
  auto start = Clock::now();
  CHECK(passes(connection.server, connection.client, "not delayed"));
  CHECK(since(start).count() < 0.055);
  start = Clock::now();
  CHECK(passes(connection.client, connection.server, "delayed"));
  CHECK(since(start).count() >= 0.06);
  net.relay.command("clear");
  net.relay.command("rate 500000 down");
  start = Clock::now();
  CHECK(passes(connection.server, connection.client, pattern(100000)));
  CHECK(since(start).count() >= 0.17);  // 100 kB but for the first piece, of 10 kB
  CHECK(since(start).count() < 1.0);
}

TEST_CASE("a relay that stalls accepts, forwards nothing, and loses nothing") {
  Relayed net;
  const auto connection = net.connect();
  net.relay.command("stall up");
  send_all(connection.client, "held back");
  CHECK(error_within(connection.server, 50) == EAGAIN);
  CHECK(passes(connection.server, connection.client, "the other direction goes on"));
  const auto second = net.connect();  // accepted
  send_all(second.client, "x");
  CHECK(error_within(second.server, 50) == EAGAIN);
  net.relay.command("forward");
  set_time_limit(connection.server, 2000);
  CHECK(receive(connection.server, 9) == "held back");
  net.relay.command("delay 30 up");
  send_all(connection.client, "in the relay");
  net.relay.command("stall up");
  CHECK(error_within(connection.server, 40) == EAGAIN);
  net.relay.command("count");  // it looks around
  CHECK(error_within(connection.server, 20) == EAGAIN);
  net.relay.command("forward");
  set_time_limit(connection.server, 2000);
  CHECK(receive(connection.server, 12) == "in the relay");
}

TEST_CASE("a relay resets connections, and serves new ones") {
  Relayed net;
  const auto connection = net.connect();
  CHECK(passes(connection.client, connection.server, "fine"));
  net.relay.command("reset");
  CHECK(error_within(connection.client, 2000) == ECONNRESET);
  CHECK(error_within(connection.server, 2000) == ECONNRESET);
  const auto next = net.connect();
  CHECK(passes(next.server, next.client, "fine again"));
}

TEST_CASE("a connection that one side has lost and the other has not") {
  Relayed net;
  const auto connection = net.connect();
  CHECK(passes(connection.client, connection.server, "fine"));
  net.relay.command("abandon client");
  CHECK(receive(connection.client, 1).empty());
  CHECK(error_within(connection.client, 100) != EAGAIN);
  send_all(connection.server, "into the void");
  CHECK(error_within(connection.server, 50) == EAGAIN);
}

TEST_CASE("what a relay drops is lost, and nothing follows the hole") {
  Relayed net;
  const auto connection = net.connect();
  net.relay.command("drop up");
  send_all(connection.client, "lost");
  CHECK(error_within(connection.server, 50) == EAGAIN);
  CHECK(passes(connection.server, connection.client, "the other direction goes on"));
  net.relay.command("forward");
  send_all(connection.client, "after the hole");
  CHECK(error_within(connection.server, 50) == EAGAIN);
  const auto next = net.connect();
  CHECK(passes(next.client, next.server, "a new connection has no hole"));
}

TEST_CASE("a relay passes on that nobody listens") {
  const TemporaryFolder folder;
  uint16_t closed = 0;
  {
    const Listener gone;
    closed = gone.port;
  }
  const BadNetwork relay(folder, "relay", "127.0.0.1", {0}, "127.0.0.1", {closed});
  const Descriptor client = local_socket();
  REQUIRE(connect_to(client, "127.0.0.1", relay.port(0)) == 0);
  CHECK(error_within(client, 2000) == ECONNRESET);
}

TEST_CASE("a relay refuses commands that it does not know") {
  Relayed net;
  for (const char* line : {"stal", "", "delay", "delay -1", "delay nan", "stall sideways", "stall port 1", "stall port",
                           "abandon", "abandon both"}) {
    CAPTURE(line);
    CHECK_THROWS_WITH(net.relay.command(line), Catch::Contains("error"));
  }
}

}  // namespace motley::fleet
