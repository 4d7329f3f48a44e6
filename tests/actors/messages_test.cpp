// The traps of CAF 0.17.6, each with a test.
#include "actors/messages.h"

#include <caf/io/all.hpp>
#include <catch2/catch.hpp>
#include <fstream>
#include <regex>

#include "actors/system.h"

namespace motley::actors {
namespace {

std::string source(const std::string& file) {
  std::ifstream in(std::string(MOTLEY_SOURCE_DIR) + "/" + file);
  return {std::istreambuf_iterator<char>(in), {}};
}

caf::behavior echo(caf::event_based_actor* self) {
  self->set_default_handler(caf::reflect);
  return {[](StopRun) { return StopRun{}; }};
}

template <class Message>
void check_round_trip(caf::scoped_actor& self, const caf::actor& remote, const Message& message) {
  const std::string sent = caf::deep_to_string(message);
  INFO(sent);
  bool came_back = false;
  self->request(remote, std::chrono::seconds(10), message)
      .receive([&](const Message& back) { came_back = caf::deep_to_string(back) == sent; },
               [&](const caf::error& error) { FAIL(self->system().render(error)); });
  CHECK(came_back);
}

TEST_CASE("every message makes the round trip between two systems") {
  SystemConfig here_config({.threads = 1, .network = true}), there_config({.threads = 1, .network = true});
  caf::actor_system here(here_config), there(there_config);
  const auto published = there.spawn(echo);
  const auto port = caf::io::publish(published, 0, "127.0.0.1");
  REQUIRE(port);
  auto remote = caf::io::remote_actor<caf::actor>(here, "127.0.0.1", *port);
  REQUIRE(remote);
  REQUIRE(remote->node() != here.node());
  {
    caf::scoped_actor self(here);
    const uint64_t big = ~uint64_t{0} - 1;
    const auto check = [&](const auto&... messages) { (check_round_trip(self, *remote, messages), ...); };
    check(Publish{big, false}, Published{big}, Subscribe{1, big, true}, SwapWeights{big, 7}, WeightsLive{2, big},
          RolledOut{big, 1}, QuantizeTick{}, OpenSessions{big}, Decode{big},
          Decoded{1, {2, 3, 4, big, 5, 6, 7, big, 8}}, SessionsFinished{big}, DecodeTick{}, ReplicaReady{1, big, "a"},
          ReplicaLost{big, "why", true}, ReplicaLeft{big}, ReplicaHangs{big}, WatchTick{}, AddReplica{big},
          RetireReplica{big}, Retire{}, FleetQuery{},
          FleetSeen{{1, big}, {2}, {}, {3}, {4}, {"a", ""}, {5}, {6}, big, 7}, LearnerWaits{}, LearnerTakes{},
          ScaleTick{}, StartInstance{big}, InstanceStarted{1, big, "why"}, StopInstance{big},
          InstanceStopped{1, big, "why"}, ListInstances{}, InstanceList{big, {1, big}, {"", "how"}, "why"}, TendTick{},
          Hello{big, "a", "b", "c", "d", "e", "f", "g"},
          Welcome{"a", big, "b", "c", "d", "e", "f", "g", 3, false, true, "h", 1, 2, big, 4, *remote}, Over{true},
          OpenGate{*remote, *remote, *remote, *remote, *remote}, LearnerLeaves{}, Farewell{}, TokenQuery{},
          PeerHello{"r"}, PeerFrame{3}, PeerClosed{"why"}, PeerLost{"why"}, Calibrate{}, Calibrated{1, 2, big},
          FleetReady{}, RateQuery{}, GroupRates{{1, big}, {}, {2}, {3}, {4}, {big}, {5}, {6}, {7, big}, -8},
          StartIssuing{big, {3, big}}, IssueBatch{big, 2}, Credits{big}, Work{big, 1}, Worked{big}, Probe{big},
          AddWorker{big}, WorkerCloses{}, EpisodeDone{big}, Evaluate{1, big}, Evaluated{big, 2}, Begin{*remote},
          StopRun{}, UpdateRow{big}, Note{std::string("a\0b", 3)}, RunFinished{true}, RunFailed{"who", "why"},
          ShutDown{});
  }
  caf::anon_send_exit(published, caf::exit_reason::user_shutdown);
}

TEST_CASE("the round trip misses no message") {
  const std::regex type_id(R"(CAF_ADD_TYPE_ID\(motley, \(motley::actors::(\w+)\)\))");
  const std::regex structure(R"(\nstruct (\w+))");
  const std::string header = source("actors/messages.h"), test = source("tests/actors/messages_test.cpp");
  std::set<std::string> ids, structures;
  for (std::sregex_iterator it(header.begin(), header.end(), type_id), end; it != end; ++it) ids.insert((*it)[1]);
  for (std::sregex_iterator it(header.begin(), header.end(), structure), end; it != end; ++it)
    structures.insert((*it)[1]);
  CHECK(ids.size() > 30);
  CHECK(ids == structures);
  for (const std::string& id : ids) CHECK(std::regex_search(test, std::regex("\\b" + id + "\\{")));
}

TEST_CASE("no message has a floating-point member") {
  std::string header = source("actors/messages.h");
  header = std::regex_replace(header, std::regex("//[^\n]*"), "");
  REQUIRE(header.size() > 1000);
  CHECK_FALSE(std::regex_search(header, std::regex(R"(\b(float|double)\b)")));
}

TEST_CASE("an exception reaches the monitor with its text, and the requester as an error") {
  SystemConfig config;
  caf::actor_system system(config);
  caf::scoped_actor self(system);
  const auto thrower = self->spawn<caf::detached>([](caf::event_based_actor* actor) -> caf::behavior {
    install_handlers(actor);
    return {[](StopRun) { throw std::runtime_error("the first cause"); }};
  });
  self->monitor(thrower);
  bool refused = false;
  self->request(thrower, std::chrono::seconds(10), StopRun{})
      .receive([] {}, [&](const caf::error&) { refused = true; });
  CHECK(refused);
  std::string cause;
  self->receive([&](const caf::down_msg& message) { cause = cause_text(system, message.reason); });
  CHECK(cause == "the first cause");
}

TEST_CASE("an unknown message ends the actor and says so") {
  SystemConfig config;
  caf::actor_system system(config);
  caf::scoped_actor self(system);
  const auto strict = self->spawn([](caf::event_based_actor* actor) -> caf::behavior {
    install_handlers(actor);
    return {[](StopRun) {}};
  });
  self->monitor(strict);
  self->send(strict, Credits{3});
  std::string cause;
  self->receive([&](const caf::down_msg& message) { cause = cause_text(system, message.reason); });
  CHECK(cause.find("does not know") != std::string::npos);
  CHECK(cause.find("Credits") != std::string::npos);
}

TEST_CASE("an exception while an actor starts reaches the monitor") {
  SystemConfig config;
  caf::actor_system system(config);
  caf::scoped_actor self(system);
  const auto stillborn =
      self->spawn<caf::monitored + caf::detached>([](caf::event_based_actor* actor) -> caf::behavior {
        install_handlers(actor);
        throw std::runtime_error("no start");
      });
  std::string cause;
  self->receive([&](const caf::down_msg& message) { cause = cause_text(system, message.reason); });
  CHECK(cause == "no start");
}

TEST_CASE("a request to a dead actor is answered with an error") {
  SystemConfig config;
  caf::actor_system system(config);
  caf::scoped_actor self(system);
  const auto mortal = self->spawn<caf::detached>([](caf::event_based_actor* actor) -> caf::behavior {
    install_handlers(actor);
    return {[](StopRun) { return StopRun{}; }};
  });
  self->send_exit(mortal, caf::exit_reason::user_shutdown);
  self->wait_for(mortal);
  caf::error error;
  self->request(mortal, std::chrono::seconds(10), StopRun{})
      .receive([](StopRun) { FAIL("it is dead"); }, [&](caf::error& reason) { error = std::move(reason); });
  CHECK(error == caf::sec::request_receiver_down);
}

TEST_CASE("systems with detached actors end when no handle outlives them") {
  for (int cycle = 0; cycle < 50; ++cycle) {
    SystemConfig config;
    caf::actor_system system(config);
    caf::scoped_actor self(system);
    std::vector<caf::actor> actors;
    for (int i = 0; i < 4; ++i)
      actors.push_back(self->spawn<caf::detached>([](caf::event_based_actor* actor) -> caf::behavior {
        install_handlers(actor);
        return {[](StopRun) { return StopRun{}; }};
      }));
    for (const caf::actor& actor : actors) self->send_exit(actor, caf::exit_reason::user_shutdown);
    for (const caf::actor& actor : actors) self->wait_for(actor);
  }
  SUCCEED();
}

TEST_CASE("control messages overtake bulk") {
  SystemConfig config;
  caf::actor_system system(config);
  caf::scoped_actor self(system);
  std::atomic<int> before_stop{-1};
  std::atomic<bool> open{false};
  const auto busy = self->spawn<caf::detached>([&](caf::event_based_actor* actor) -> caf::behavior {
    install_handlers(actor);
    auto seen = std::make_shared<int>(0);
    return {[&open](DecodeTick) {
              while (!open) std::this_thread::yield();
            },
            [seen](Credits) { ++*seen; },
            [seen, &before_stop, actor](StopRun) {
              before_stop = *seen;
              actor->quit();
            }};
  });
  self->send(busy, DecodeTick{});
  for (int i = 0; i < 1000; ++i) self->send(busy, Credits{1});
  self->send<caf::message_priority::high>(busy, StopRun{});
  open = true;
  self->wait_for(busy);
  // A few normal messages may share the round of the queue with it.
  CHECK(before_stop >= 0);
  CHECK(before_stop < 100);
}

}  // namespace
}  // namespace motley::actors
