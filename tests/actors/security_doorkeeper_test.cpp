// Which connections to a port are ended, and when: by what has come through them, on a clock of the test's.
#include <netinet/in.h>
#include <sys/resource.h>

#include <catch2/catch.hpp>

#include "actors/security/doorkeeper.h"
#include "tests/actors/strangers.h"

namespace motley::actors {
namespace {

using std::chrono::milliseconds;

/// A listening port whose connections are accepted and left alone.
class Door {
 public:
  Door() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    REQUIRE(::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(::listen(listener_, 64) == 0);
    REQUIRE(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    port = ntohs(address.sin_port);
  }
  ~Door() {
    for (const int fd : accepted_) ::close(fd);
    ::close(listener_);
  }
  /// Opens connections, and accepts them here.
  void open(Strangers& strangers, int count, const std::string& bytes) {
    strangers.open(count, bytes);
    for (int i = 0; i < count; ++i) accepted_.push_back(::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC));
  }
  uint16_t port = 0;

 private:
  int listener_;
  std::vector<int> accepted_;
};

const DoorLimits kLimits{
    .handshake = milliseconds(5000), .silence = milliseconds(10000), .silence_bytes = 50, .strangers = 20};

/// Moments in seconds after the first look.
Doorkeeper::Clock::time_point at(int seconds) {
  return Doorkeeper::Clock::time_point(std::chrono::hours(1)) + std::chrono::seconds(seconds);
}

}  // namespace

TEST_CASE("a connection without its handshake is ended in time, one with it goes on while it speaks") {
  const size_t before = open_descriptors();
  {
    Door door;
    Doorkeeper keeper(kLimits);
    keeper.watch_listening(door.port, 100);
    Strangers silent(door.port), short_of_it(door.port), peers(door.port);
    door.open(silent, 3, "");
    door.open(short_of_it, 3, std::string(99, 'x'));
    door.open(peers, 3, std::string(100, 'x'));
    CHECK(keeper.look(at(0)) == 0);
    CHECK(keeper.look(at(4)) == 0);
    CHECK(silent.count_open_after(milliseconds(0)) == 3);
    CHECK(keeper.look(at(5)) == 6);
    CHECK(silent.all_closed_within(milliseconds(500)));
    CHECK(short_of_it.all_closed_within(milliseconds(500)));
    CHECK(peers.count_open_after(milliseconds(0)) == 3);
    // In every ten seconds fifty bytes.
    peers.send(std::string(50, 'x'));
    CHECK(keeper.look(at(10)) == 0);
    CHECK(keeper.look(at(19)) == 0);
    peers.send(std::string(49, 'x'));
    CHECK(keeper.look(at(20)) == 3);
    CHECK(peers.all_closed_within(milliseconds(500)));
  }
  CHECK(open_descriptors() == before);
}

TEST_CASE("of too many strangers the oldest are ended, and no peer") {
  Door door;
  Doorkeeper keeper(kLimits);
  keeper.watch_listening(door.port, 100);
  Strangers peers(door.port), first(door.port), later(door.port);
  door.open(peers, 5, std::string(100, 'x'));
  door.open(first, 10, "");
  CHECK(keeper.look(at(0)) == 0);
  door.open(later, 15, "");
  CHECK(keeper.look(at(1)) == 5);
  CHECK(first.count_open_after(milliseconds(100)) == 5);
  CHECK(later.count_open_after(milliseconds(0)) == 15);
  CHECK(peers.count_open_after(milliseconds(0)) == 5);
}

TEST_CASE("a doorkeeper leaves other ports, and what listens, alone") {
  Door door, other;
  Doorkeeper keeper(kLimits);
  keeper.watch_listening(door.port, 100);
  Strangers strangers(other.port);
  other.open(strangers, 3, "");
  CHECK(keeper.look(at(0)) == 0);
  CHECK(keeper.look(at(100)) == 0);
  CHECK(strangers.count_open_after(milliseconds(0)) == 3);
  Strangers late(door.port);
  door.open(late, 1, "");  // the port still listens
}

TEST_CASE("a doorkeeper ends what this process has dialed, too") {
  Door door, other;
  Doorkeeper keeper(kLimits);
  keeper.watch_dialed(door.port, 100);
  Strangers dialed(door.port), elsewhere(other.port);
  door.open(dialed, 2, "");
  other.open(elsewhere, 2, "");
  CHECK(keeper.look(at(0)) == 0);
  CHECK(keeper.look(at(5)) == 2);
  CHECK(dialed.all_closed_within(milliseconds(500)));
  CHECK(elsewhere.count_open_after(milliseconds(0)) == 2);
}

TEST_CASE("the limit on open files is raised as far as allowed, and never lowered") {
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const auto limit = [] {
    rlimit now{};
    ::getrlimit(RLIMIT_NOFILE, &now);
    return now.rlim_cur;
  };
  raise_descriptor_limit(1);
  CHECK(limit() == before.rlim_cur);
  rlimit low = before;
  low.rlim_cur = 512;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &low) == 0);
  raise_descriptor_limit(600);
  CHECK(limit() == 600);
  raise_descriptor_limit(~uint64_t{0});
  CHECK(limit() == before.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &before);
}

}  // namespace motley::actors
