// Machines of a network reach each other, and only while they are plugged in; nothing of them outlives the test.
#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <optional>

#include "tests/fleet/bad_network.h"
#include "tests/fleet/process_facts.h"
#include "tests/fleet/sockets.h"

namespace motley::fleet {

TEST_CASE("machines reach each other while they are plugged in", "[network]") {
  if (!networks_available()) return;
  const auto rights = GENERATE(Network::Rights::as_available, Network::Rights::own_user_namespace);
  std::optional<Network> made;
  try {
    made.emplace(3, rights);
  } catch (const Unavailable& reason) {  // with rights, and user namespaces switched off
    WARN(reason.what());
    return;
  }
  const Network& network = *made;
  const Listener server(network.machine(1).address(), network.machine(1).socket());
  const auto connect = [&](int from, int milliseconds) {
    Descriptor client = network.machine(from).socket();
    const int error = connect_to(client, network.machine(1).address(), server.port, milliseconds);
    return std::pair(std::move(client), error);
  };
  const auto [client, failed] = connect(0, 2000);
  REQUIRE(failed == 0);
  const Descriptor accepted = server.accept();
  CHECK(connect_to(local_socket(), network.machine(1).address(), server.port, 50) != 0);  // from outside
  {
    const Listener same("127.0.0.1", network.machine(2).socket());
    const Descriptor elsewhere = network.machine(0).socket();
    CHECK(connect_to(elsewhere, "127.0.0.1", same.port) == ECONNREFUSED);  // a loopback of its own
  }

  network.unplug(0);
  CHECK(connect(0, 50).second != 0);
  CHECK(connect(2, 2000).second == 0);
  send_all(client, "on its way");
  CHECK(error_within(accepted, 50) == EAGAIN);
  network.plug(0);
  set_time_limit(accepted, 5000);
  CHECK(receive(accepted, 10) == "on its way");  // sent again by the kernel
}

TEST_CASE("a program on a machine: its output, signals, limits and its end", "[network]") {
  if (!networks_available()) return;
  const TemporaryFolder folder;
  const Network network(1);
  const Machine& machine = network.machine(0);
  Program shell(folder, "shell", {"sh", "-c", "ip -br address; pwd; echo started >&2; read line; echo $line; exit 3"},
                &machine);
  shell.wait_for_log("started", Seconds(5));
  CHECK(shell.running());
  CHECK_THROWS_WITH(shell.wait(Seconds(0.02)), Catch::Contains("has not ended") && Catch::Contains("started"));
  CHECK_THROWS_WITH(shell.wait_for_log("never said", Seconds(0.02)), Catch::Contains("never said"));
  shell.write_line("heard");
  CHECK(shell.wait(Seconds(5)) == 3);
  CHECK_THROWS_WITH(shell.write_line("too late"), Catch::Contains("takes no input"));
  CHECK(shell.out().find("10.77.0.1/24") != std::string::npos);
  CHECK(shell.out().find(folder.path().string()) != std::string::npos);
  CHECK(shell.out().ends_with("heard\n"));
  CHECK_THROWS_WITH(Program(folder, "absent", {"no-such-program"}, &machine),
                    Catch::Contains("cannot run the program"));

  Program sleeper(folder, "sleeper", {"sleep", "1000"}, &machine);
  sleeper.signal(SIGTERM);
  CHECK(sleeper.wait(Seconds(5)) == 128 + SIGTERM);
}

TEST_CASE("kill -9 of a test leaves neither its programs nor its networks", "[network]") {
  if (!networks_available()) return;
  const auto rights = GENERATE(Network::Rights::as_available, Network::Rights::own_user_namespace);
  const TemporaryFolder folder;
  const pid_t test = ::fork();
  REQUIRE(test >= 0);
  if (test == 0) {
    try {
      const Network network(2, rights);
      const Program program(folder, "sleeper", {"sleep", "1000"}, &network.machine(1));
      const BadNetwork relay(folder, "relay", "127.0.0.1", {0}, "127.0.0.1", {1}, &network.machine(0));
      folder.write("ready", network.identity());
      ::pause();
    } catch (const std::exception& error) {
      folder.write("ready", std::string("failed: ") + error.what());
    }
    ::_exit(1);
  }
  const bool ready = wait_until(Seconds(10), [&] { return !folder.read("ready").empty(); });
  const std::string identity = folder.read("ready");
  const bool lived = ready && inhabitants(identity) > 0;
  ::kill(test, SIGKILL);
  ::waitpid(test, nullptr, 0);
  CAPTURE(identity);
  REQUIRE(lived);
  CHECK(wait_until(Seconds(5), [&] { return inhabitants(identity) == 0; }));
}

}  // namespace motley::fleet
