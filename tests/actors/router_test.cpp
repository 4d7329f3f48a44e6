// The router, with the test in the place of samplers, environment and supervisor.
#include "actors/router.h"

#include "tests/actors/actor_stage.h"

namespace motley::actors {
namespace {

StepOutputsPtr output(uint64_t session, std::vector<int32_t> tokens, FinishReason finish) {
  auto outputs = std::make_shared<std::vector<StepOutput>>(1);
  outputs->front().id = session;
  outputs->front().finish = finish;
  TokenRecords& records = outputs->front().records;
  for (const int32_t token : tokens) {
    records.tokens.push_back(token);
    records.log_q.push_back(-1);
    records.versions.push_back(0);
    records.offsets.push_back(0);
    records.log_tail.push_back(0);
  }
  return outputs;
}

TEST_CASE("the router continues a session from its tokens under a new attempt, once") {
  Experiment experiment = tiny_experiment(false);
  experiment.samplers[0].replicas = 2;
  Stage stage(experiment);
  // One actor plays both replicas, the supervisor and the environment.
  const caf::actor routing = stage.self->spawn(router, stage.fleet, stage.me());
  for (const uint64_t replica : {0, 1}) stage.self->send(routing, ReplicaReady{replica, 0});
  stage.expect<FleetReady>();
  auto sessions = std::make_shared<std::vector<SessionRequest>>();
  for (const uint64_t id : {0, 1})
    sessions->push_back({.session = id, .tokens = {1, 2}, .max_tokens = 10, .random_session = 100 + id});
  stage.self->send(routing, OpenSessions{2}, SessionRequestsPtr(sessions));
  for (const uint64_t id : {0, 1}) {  // one to each replica
    const auto [message, requests] = stage.expect<Decode, GenerateRequestsPtr>();
    REQUIRE(requests->size() == 1);
    CHECK(requests->front().id == id);
    CHECK(requests->front().key.session == 100 + id);
    CHECK(requests->front().key.attempt == 0);
  }
  stage.self->send(routing, Decoded{.replica = 0}, output(0, {7, 8}, FinishReason::none));
  stage.self->send(routing, ReplicaLost{0, "first"});
  const auto [message, requests] = stage.expect<Decode, GenerateRequestsPtr>();
  REQUIRE(requests->size() == 1);
  CHECK(requests->front().tokens == std::vector<int32_t>{1, 2, 7, 8});
  CHECK(requests->front().max_new_tokens == 8);
  CHECK(requests->front().key.attempt == 1);

  stage.self->send(routing, ReplicaLost{1, "second"});  // no replica is left: session 1 waits, session 0 fails
  const auto [finished, failures] = stage.expect<SessionsFinished, FinishedSessionsPtr>();
  REQUIRE(failures->size() == 1);
  CHECK(failures->front().session == 0);
  CHECK(failures->front().finish == FinishReason::failed);
  CHECK(failures->front().failure.find("second") != std::string::npos);
  CHECK(failures->front().records.tokens == std::vector<int32_t>{7, 8});

  stage.self->send(routing, ReplicaReady{0, 0});
  const auto again = std::get<1>(stage.expect<Decode, GenerateRequestsPtr>());
  REQUIRE(again->size() == 1);
  CHECK(again->front().id == 1);
  stage.self->send(routing, Decoded{.replica = 0, .counts = {.tokens = 1, .busy_ns = 5}},
                   output(1, {9}, FinishReason::stop));
  const auto [last, done] = stage.expect<SessionsFinished, FinishedSessionsPtr>();
  CHECK(done->front().attempt == 1);
  CHECK(done->front().finish == FinishReason::stop);
  stage.end(routing);
}

SessionRequestsPtr some_sessions(uint64_t count) {
  auto sessions = std::make_shared<std::vector<SessionRequest>>();
  for (uint64_t id = 0; id < count; ++id)
    sessions->push_back({.session = id, .tokens = {1, 2}, .max_tokens = 10, .random_session = id});
  return sessions;
}

std::vector<uint64_t> ids_of(const GenerateRequestsPtr& requests) {
  std::vector<uint64_t> ids;
  for (const GenerateRequest& request : *requests) ids.push_back(request.id);
  return ids;
}

TEST_CASE("sessions beyond the slots wait in the router, first come first served; a new replica takes what waits") {
  Experiment experiment = tiny_experiment(true);
  experiment.samplers[0].max_sequences = 2;
  experiment.samplers[0].capacity = 1.0;
  Stage stage(experiment);
  const caf::actor routing = stage.self->spawn(router, stage.fleet, stage.me());
  stage.self->send(routing, ReplicaReady{0, 0});
  stage.expect<FleetReady>();
  stage.self->send(routing, OpenSessions{7}, some_sessions(7));
  CHECK(ids_of(std::get<1>(stage.expect<Decode, GenerateRequestsPtr>())) == std::vector<uint64_t>{0, 1});
  stage.self->send(routing, Decoded{.replica = 0}, output(1, {9}, FinishReason::stop));
  CHECK(ids_of(std::get<1>(stage.expect<Decode, GenerateRequestsPtr>())) == std::vector<uint64_t>{2});
  stage.expect<SessionsFinished, FinishedSessionsPtr>();
  stage.self->send(routing, ReplicaReady{1, 0});
  CHECK(ids_of(std::get<1>(stage.expect<Decode, GenerateRequestsPtr>())) == std::vector<uint64_t>{3, 4});
  stage.self->send(routing, Decoded{.replica = 1}, output(4, {9}, FinishReason::stop));
  CHECK(ids_of(std::get<1>(stage.expect<Decode, GenerateRequestsPtr>())) == std::vector<uint64_t>{5});
  stage.end(routing);
}

TEST_CASE("who leaves costs its sessions nothing; a group without anybody gives its sessions to another") {
  Experiment experiment = tiny_experiment(true);
  experiment.samplers.push_back(experiment.samplers[0]);
  experiment.samplers[1].name = "two";
  for (SamplerGroupOptions& group : experiment.samplers) group.capacity = 1.0;
  Stage stage(experiment);
  const caf::actor routing = stage.self->spawn(router, stage.fleet, stage.me());
  for (const uint64_t replica : {0, 1}) stage.self->send(routing, ReplicaReady{replica, replica});
  stage.expect<FleetReady>();
  stage.self->send(routing, OpenSessions{2}, some_sessions(2));
  for (int i = 0; i < 2; ++i) stage.expect<Decode, GenerateRequestsPtr>();  // one to each group
  stage.self->send(routing, Decoded{.replica = 0}, output(0, {7}, FinishReason::none));
  const bool leaves = GENERATE(true, false);
  if (leaves) {
    stage.self->send(routing, ReplicaLeft{0});
  } else {
    stage.self->send(routing, ReplicaLost{0, "why", true});  // another is on its way: the session waits for it
    bool moved = false;
    stage.self->receive([&](const Decode&, const GenerateRequestsPtr&) { moved = true; },
                        caf::after(std::chrono::milliseconds(50)) >> [] {});
    CHECK_FALSE(moved);
    stage.self->send(routing, ReplicaReady{0, 0});
  }
  const auto moved = std::get<1>(stage.expect<Decode, GenerateRequestsPtr>());
  CHECK(moved->front().tokens == std::vector<int32_t>{1, 2, 7});
  CHECK(moved->front().key.attempt == (leaves ? 0 : 1));
  stage.self->send(routing, Decoded{.replica = leaves ? uint64_t{1} : 0}, output(0, {9}, FinishReason::stop));
  const auto done = std::get<1>(stage.expect<SessionsFinished, FinishedSessionsPtr>());
  CHECK(done->front().group == (leaves ? 1 : 0));
  CHECK(done->front().records.tokens == std::vector<int32_t>{7, 9});
  stage.end(routing);
}

TEST_CASE("a replica that is lost before it serves is expected once: its group is not waited for in vain later") {
  Experiment experiment = tiny_experiment(true);  // capacities are measured
  experiment.samplers.push_back(experiment.samplers[0]);
  experiment.samplers[1].name = "two";
  experiment.samplers[1].replicas = 0;
  Stage stage(experiment);
  const caf::actor routing = stage.self->spawn(router, stage.fleet, stage.me());
  const auto serve = [&](uint64_t replica, uint64_t group) {
    stage.self->send(routing, ReplicaReady{replica, group});
    stage.expect<Calibrate>();
    stage.self->send(routing, Calibrated{replica, 100, 1000});
  };
  stage.self->send(routing, ReplicaReady{0, 0});
  stage.expect<Calibrate>();
  stage.self->send(routing, ReplicaLost{0, "early", true});
  serve(0, 0);
  stage.expect<FleetReady>();
  stage.self->send(routing, OpenSessions{1}, some_sessions(1));
  stage.expect<Decode, GenerateRequestsPtr>();
  stage.self->send(routing, Decoded{.replica = 0}, output(0, {7}, FinishReason::none));
  serve(1, 1);
  stage.self->send(routing, ReplicaLost{0, "late"});
  CHECK(std::get<1>(stage.expect<Decode, GenerateRequestsPtr>())->front().tokens == std::vector<int32_t>{1, 2, 7});
  stage.end(routing);
}

}  // namespace
}  // namespace motley::actors
