// Addresses to listen on and to join: what is taken, what is refused with which words, and what is loopback.
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "actors/security/addresses.h"

namespace motley::actors {
namespace {

using Catch::Contains;

std::string listen(std::string_view text, bool secured = false) {
  return address_text(parse_listen_address(text, secured));
}
std::string join(std::string_view text) { return address_text(parse_join_address(text)); }

}  // namespace

TEST_CASE("an address to listen on is loopback unless it says otherwise, and that needs a key") {
  CHECK(listen(":0") == "127.0.0.1:0");
  CHECK(listen(":7000") == "127.0.0.1:7000");
  CHECK(listen("localhost:7000") == "127.0.0.1:7000");
  CHECK(listen("127.3.2.1:7000") == "127.3.2.1:7000");
  CHECK(listen("[::1]:65532") == "[::1]:65532");
  CHECK(listen("[::ffff:127.0.0.1]:1") == "[::ffff:127.0.0.1]:1");
  for (const std::string host : {"10.0.0.1", "0.0.0.0", "128.0.0.1", "[::]", "[::ffff:10.0.0.1]", "[fe80::1]"}) {
    CAPTURE(host);
    CHECK_THROWS_WITH(listen(host + ":7000"), Contains("needs a key: motley keygen fleet.key"));
    CHECK(listen(host + ":7000", true) == host + ":7000");
  }
}

TEST_CASE("what is no address to listen on is refused with what is") {
  const auto refused = [](std::string_view text, const std::string& words) {
    CAPTURE(text, words);
    CHECK_THROWS_WITH(listen(text, true), Contains(words));
  };
  refused("", "there is no port");
  refused("7000", "there is no port");
  refused("localhost:", "'' is no port");
  refused(":port", "'port' is no port");
  refused(":-1", "'-1' is no port");
  refused(": 7000", "spaces");
  refused(":65536", "0 to 65535");
  refused(":65533", "at most 65532");
  refused("::1:7000", "brackets");
  refused("[::1:7000", "brackets");
  refused("[zz]:7000", "no IPv6 address");
  refused("[127.0.0.1]:7000", "no IPv6 address");
  refused("example:7000", "an IP address of this machine");
  refused("127.1:7000", "an IP address of this machine");
  refused(std::string("127.0.0.1\0x", 11) + ":7000", "control characters");
}

TEST_CASE("an address to join names a host, by number or name, and a port") {
  CHECK(join("trainer.example:7000") == "trainer.example:7000");
  CHECK(join("10.0.0.1:1") == "10.0.0.1:1");
  CHECK(join("[::1]:65535") == "[::1]:65535");
  CHECK_THROWS_WITH(join(":7000"), Contains("there is no host"));
  CHECK_THROWS_WITH(join("a:0"), Contains("port 0"));
  CHECK_THROWS_WITH(join("a,b:7"), Contains("no name"));
  CHECK_THROWS_WITH(join("-a:7"), Contains("no name"));
  CHECK_THROWS_WITH(join(std::string(254, 'a') + ":7"), Contains("no name"));
  CHECK(zmq_endpoint({"::1", 7}) == "tcp://[::1]:7");
  CHECK(zmq_endpoint({"127.0.0.1", 0}) == "tcp://127.0.0.1:*");
  CHECK(zmq_endpoint({"127.0.0.1", 10}) == "tcp://127.0.0.1:10");
}

}  // namespace motley::actors
