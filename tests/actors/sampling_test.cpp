// Sampler and weight plane, each with the test in the place of its peers.
#include <map>
#include <numeric>

#include "actors/sampler.h"
#include "actors/weight_plane.h"
#include "tests/actors/actor_stage.h"

namespace motley::actors {
namespace {

GenerateRequestsPtr request(const Stage& stage, uint64_t id, int64_t tokens) {
  auto requests = std::make_shared<std::vector<GenerateRequest>>(1);
  GenerateRequest& request = requests->front();
  request.id = id;
  request.tokens = stage.fleet->tokenizer.encode("1+1=");
  request.max_new_tokens = tokens;
  request.key.seed = 4;
  return requests;
}

TEST_CASE("a sampler refuses weights that are not what was announced") {
  for (const bool wrong_version : {false, true}) {
    Stage stage(tiny_experiment(true));
    const caf::actor replica = stage.self->spawn<caf::detached>(sampler, stage.fleet, 0, 0, stage.me(), stage.me());
    stage.self->monitor(replica);
    stage.expect<Subscribe>();
    const WeightsPtr weights = stage.weights(3);
    const uint64_t digest = weights->digest();
    stage.self->send(replica, SwapWeights{wrong_version ? 4u : 3u, wrong_version ? digest : digest + 1}, weights);
    const auto [death] = stage.expect<caf::down_msg>();
    CHECK(cause_text(stage.system, death.reason).find("not what the weight plane announced") != std::string::npos);
  }
}

TEST_CASE("weights change in the middle of an answer: every token carries its version, chunks arrive on the way") {
  const bool recompute = GENERATE(false, true);
  Experiment experiment = tiny_experiment(true);
  if (recompute) experiment.run.kv_on_swap = "recompute";
  Stage stage(experiment);
  Parameters other = stage.point->parameters.clone();
  other.at("model.norm.weight").data<float>()[0] += 1.0f;
  std::atomic<int64_t> seen{-1};
  std::atomic<bool> go{false};
  stage.fleet->hooks.before_step = [&](const std::string&, uint64_t, int64_t step) {
    seen = step;
    while (step == 20 && !go) std::this_thread::yield();
  };
  const caf::actor replica = stage.self->spawn<caf::detached>(sampler, stage.fleet, 0, 0, stage.me(), stage.me());
  stage.expect<Subscribe>();
  for (const uint64_t version : {0, 7}) {
    const WeightsPtr weights = std::make_shared<SamplerWeights>(
        stage.fleet->model, version == 0 ? stage.point->parameters : other, stage.fleet->profile("trainer"), version);
    if (version == 7) {
      stage.self->send(replica, Decode{1}, request(stage, 5, 40));
      while (seen < 20) std::this_thread::yield();
    }
    stage.self->send<caf::message_priority::high>(replica, SwapWeights{version, weights->digest()}, weights);
    if (version == 0) {
      CHECK(std::get<0>(stage.expect<WeightsLive>()).version == 0);
      stage.expect<ReplicaReady>();
    }
  }
  go = true;
  TokenRecords records;
  uint64_t rows = 0, kept_rows = 0;
  int chunks = 0;
  for (FinishReason finish = FinishReason::none; finish == FinishReason::none;) {
    const auto [done, outputs] = stage.expect<Decoded, StepOutputsPtr>();
    REQUIRE(outputs->size() == 1);
    CHECK(done.counts.tokens == outputs->front().records.size());
    records.append(outputs->front().records);
    rows += done.counts.rows;
    kept_rows += done.counts.kept_rows;
    finish = outputs->front().finish;
    ++chunks;
  }
  CHECK(chunks == 3);  // 16, 16 and 8 tokens
  REQUIRE(records.size() == 40);
  CHECK(records.versions.front() == 0);
  CHECK(records.versions[20] == 0);  // the step that was under way
  CHECK(records.versions[21] == 7);
  CHECK(std::is_sorted(records.versions.begin(), records.versions.end()));
  // When the weights came the cache held the prompt of four and the twenty tokens that were drawn from.
  CHECK(kept_rows == (recompute ? 0 : 24));
  CHECK(rows == 4 + 39 + (recompute ? 24 : 0));
  stage.end(replica);
}

TEST_CASE("a sampler measures its capacity with full slots, and fails a session that can never run alone") {
  Stage stage(tiny_experiment(true));
  const caf::actor replica = stage.self->spawn<caf::detached>(sampler, stage.fleet, 3, 0, stage.me(), stage.me());
  stage.expect<Subscribe>();
  const WeightsPtr weights = stage.weights(0);
  stage.self->send(replica, SwapWeights{0, weights->digest()}, weights);
  CHECK(std::get<0>(stage.expect<ReplicaReady>()).replica == 3);
  stage.self->send(replica, Calibrate{});
  const auto [measured] = stage.expect<Calibrated>();
  CHECK(measured.tokens == 8 * 4);  // slots times max_tokens
  CHECK(measured.busy_ns > 0);
  const GenerateRequestsPtr wrong = request(stage, 1, 4);
  wrong->front().tokens = {1000000};
  stage.self->send(replica, Decode{1}, wrong);
  const auto [done, outputs] = stage.expect<Decoded, StepOutputsPtr>();
  CHECK(outputs->front().finish == FinishReason::failed);
  CHECK_FALSE(outputs->front().error.empty());
  stage.end(replica);
}

TEST_CASE("the digest that is announced covers every tensor") {
  for (const bool tied : {false, true}) {
    Experiment experiment = tiny_experiment(true);
    experiment.model.config.tied_head = tied;
    const Stage stage(experiment);
    for (const char* profile : {"trainer", "h100-fp8", "b200-nvfp4"}) {
      const auto digest = [&](const Parameters& masters) {
        return SamplerWeights(stage.fleet->model, masters, stage.fleet->profile(profile), 1).digest();
      };
      const uint64_t whole = digest(stage.point->parameters);
      for (const std::string& name : stage.point->parameters.names()) {
        CAPTURE(tied, profile, name);
        Parameters other = stage.point->parameters.clone();
        for (float& x : other.at(name).span<float>()) x = -x;  // as if the tensor had kept its old values
        CHECK(digest(other) != whole);
      }
    }
  }
}

TEST_CASE("swapping in a loop while sampling: every token has one version and a number") {
  constexpr int64_t kTokens = 55;
  Stage stage(tiny_experiment(true));
  std::atomic<int64_t> begun{-1}, swapped{-1};
  stage.fleet->hooks.before_step = [&](const std::string&, uint64_t, int64_t step) {
    begun = step;
    while (swapped < step) std::this_thread::yield();
  };
  const caf::actor replica = stage.self->spawn<caf::detached>(sampler, stage.fleet, 0, 0, stage.me(), stage.me());
  stage.expect<Subscribe>();
  const Parameters other = Parameters::initialize(stage.fleet->model, 77);
  const auto swap = [&](uint64_t version) {
    const Parameters& masters = version % 2 == 0 ? stage.point->parameters : other;
    const WeightsPtr weights =
        std::make_shared<SamplerWeights>(stage.fleet->model, masters, stage.fleet->profile("trainer"), version);
    stage.self->send<caf::message_priority::high>(replica, SwapWeights{version, weights->digest()}, weights);
  };
  swap(0);
  stage.expect<WeightsLive>();
  stage.expect<ReplicaReady>();
  const GenerateRequestsPtr requests = request(stage, 0, kTokens);
  for (uint64_t id = 1; id < 8; ++id) requests->push_back(request(stage, id, kTokens)->front());
  stage.self->send(replica, Decode{requests->size()}, requests);
  for (int64_t step = 0; step < kTokens; ++step) {  // the next weights arrive while a step is under way
    while (begun < step) std::this_thread::yield();
    swap(static_cast<uint64_t>(step) + 1);
    swapped = step;
  }
  std::map<uint64_t, TokenRecords> records;
  for (size_t finished = 0; finished < 8;) {
    const StepOutputsPtr outputs = std::get<1>(stage.expect<Decoded, StepOutputsPtr>());
    for (const StepOutput& output : *outputs) {
      records[output.id].append(output.records);
      finished += output.finish != FinishReason::none ? 1 : 0;
    }
  }
  std::vector<uint64_t> versions(kTokens);
  std::iota(versions.begin(), versions.end(), 0);
  for (const auto& [id, record] : records) {
    CHECK(record.versions == versions);
    for (const float log_q : record.log_q) CHECK((std::isfinite(log_q) && log_q <= 0.0f));
  }
  stage.end(replica);
}

TEST_CASE("a weight plane that is behind quantizes the newest version only") {
  Stage stage(tiny_experiment(true));
  std::atomic<bool> open{false};
  // The only worker of the system is held until every message lies in the plane's mailbox.
  const caf::actor gate = stage.self->spawn([&open](caf::event_based_actor*) -> caf::behavior {
    return {[&open](DecodeTick) {
      while (!open) std::this_thread::yield();
    }};
  });
  const caf::actor plane = stage.self->spawn(weight_plane, stage.fleet);
  stage.self->send(plane, Subscribe{0, 0});
  stage.self->send(gate, DecodeTick{});
  for (const uint64_t version : {1, 2, 3}) stage.self->send(plane, Publish{version, true}, stage.snapshot());
  open = true;
  const auto [swap, weights] = stage.expect<SwapWeights, WeightsPtr>();
  // The first may have been under way before the gate closed; nothing between it and the newest is.
  const bool early = swap.version == 1;
  const SwapWeights newest = early ? std::get<0>(stage.expect<SwapWeights, WeightsPtr>()) : swap;
  CHECK(newest.version == 3);
  CHECK(weights->version() == swap.version);
  CHECK(weights->digest() == swap.digest);
  stage.end(plane);
  stage.end(gate);
}

TEST_CASE("a version is rolled out when the last replica has it or a newer one; versions between are not told of") {
  Stage stage(tiny_experiment(true));
  const caf::actor plane = stage.self->spawn(weight_plane, stage.fleet);
  const auto nothing_rolled_out = [&] {
    bool rolled = false;
    stage.self->receive([&](const RolledOut&) { rolled = true; }, caf::after(std::chrono::milliseconds(30)) >> [] {});
    CHECK_FALSE(rolled);
  };
  stage.self->send(plane, Publish{0, true}, stage.snapshot());
  for (const uint64_t replica : {0, 1}) {
    stage.self->send(plane, Subscribe{replica, 0});
    stage.expect<SwapWeights, WeightsPtr>();
    stage.self->send(plane, WeightsLive{replica, 0});
  }
  CHECK(std::get<0>(stage.expect<RolledOut>()).version == 0);
  for (const uint64_t version : {1, 2}) {
    stage.self->send(plane, Publish{version, true}, stage.snapshot());
    for (int replica = 0; replica < 2; ++replica) stage.expect<SwapWeights, WeightsPtr>();
  }
  stage.self->send(plane, WeightsLive{0, 2});
  nothing_rolled_out();
  stage.self->send(plane, WeightsLive{1, 2});
  CHECK(std::get<0>(stage.expect<RolledOut>()).version == 2);
  nothing_rolled_out();
  stage.end(plane);
}

TEST_CASE("lock-step: a version is published when every replica has it, also one that came late") {
  Experiment experiment = tiny_experiment(false);
  experiment.samplers[0].replicas = 2;
  Stage stage(experiment);
  const caf::actor plane = stage.self->spawn(weight_plane, stage.fleet);
  stage.self->send(plane, Publish{0, true}, stage.snapshot());
  stage.self->send(plane, Subscribe{0, 0});
  stage.expect<SwapWeights, WeightsPtr>();
  stage.self->send(plane, WeightsLive{0, 0});
  stage.self->send(plane, Subscribe{1, 0});
  bool early = false;
  stage.self->receive([&](const Published&) { early = true; }, [](const SwapWeights&, const WeightsPtr&) {});
  CHECK_FALSE(early);
  stage.self->send(plane, WeightsLive{1, 0});
  CHECK(std::get<0>(stage.expect<Published>()).version == 0);
  stage.end(plane);
}

}  // namespace
}  // namespace motley::actors
