// How the engine schedules: batches, slots, limits, ends of requests, weight swaps, failures.
#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>

#include "kernels/parallel.h"
#include "tensor/engine_context.h"
#include "tests/tensor/engine_fixture.h"

namespace motley {
namespace {

using namespace test;

/// The NaN row of the embedding belongs to this id; the head is not tied to it.
constexpr int32_t kPoison = 36;

TEST_CASE("results do not depend on batch, order, slots, pieces or threads", "[engine][device]") {
  const Device device = every_device();
  INFO(kernels::device_name(device));
  const Model model = make_model(sized(device, grouped_tied(), smallest()), 51);
  const auto weights = sampler_weights(model, plain_profile("bf16"), 1, device);
  const auto requests =
      sized(device, seven_requests(20, model.config.vocabulary, {1.0, 0.95, 0}), three_requests({1.0, 0.95, 0}));
  const auto expected = generate(weights, {7, 16, 4096}, requests);
  CHECK(expected.size() == requests.size());

  std::vector<GenerateRequest> reversed(requests.rbegin(), requests.rend());
  CHECK(generate(weights, {7, 16, 4096}, reversed) == expected);
  CHECK(generate(weights, {2, 16, 4096}, requests) == expected);
  CHECK(generate(weights, {7, 4, 5}, requests) == expected);
  if (device != kCpu) return;
  CHECK(generate(weights, {7, 1000, 1}, requests) == expected);
  kernels::set_compute_threads(3);
  CHECK(generate(weights, {7, 16, 4096}, requests) == expected);
  kernels::set_compute_threads(1);

  Engine trickled(weights, {7, 16, 4096});
  std::map<uint64_t, Finished> finished;
  for (const GenerateRequest& request : requests) {
    trickled.submit(request);
    collect(trickled.step(), finished);
    collect(trickled.step(), finished);
  }
  collect(trickled.step(), finished);
  while (!trickled.idle()) collect(trickled.step(), finished);
  CHECK(finished == expected);
}

TEST_CASE("draws depend on seed, session and attempt", "[engine]") {
  const Model model = make_model(odd_untied(), 52);
  const auto weights = sampler_weights(model, plain_profile("bf16"));
  const GenerateRequest first = make_request(1, 5, 30, model.config.vocabulary, {});
  GenerateRequest session = first, attempt = first, seed = first;
  session.id = 2, session.key.session += 1;
  attempt.id = 3, attempt.key.attempt = 1;
  seed.id = 4, seed.key.seed += 1;
  GenerateRequest same = first;
  same.id = 5;
  auto finished = generate(weights, {5, 16, 4096}, {first, session, attempt, seed, same});
  const auto tokens = [&](uint64_t id) -> const std::vector<int32_t>& { return finished.at(id).records.tokens; };
  CHECK(tokens(1) != tokens(2));
  CHECK(tokens(1) != tokens(3));
  CHECK(tokens(1) != tokens(4));
  CHECK(finished.at(1) == finished.at(5));

  // A session continued from its tokens, as after a lost sampler, goes on with the numbers of its positions.
  GenerateRequest rest = first;
  rest.tokens = whole(first, finished.at(1).records);
  rest.tokens.resize(first.tokens.size() + 12);
  rest.max_new_tokens = 18;
  const TokenRecords tail = generate(weights, {1, 16, 4096}, {rest}).at(1).records;
  CHECK(tail.tokens == std::vector<int32_t>(tokens(1).begin() + 12, tokens(1).end()));
}

TEST_CASE("a request ends by stop token, by length or by position", "[engine][device]") {
  const Device device = every_device();
  INFO(kernels::device_name(device));
  const Model model = make_model(sized(device, grouped_tied(), smallest()), 53);
  const auto weights = sampler_weights(model, plain_profile("fp32"), 1, device);
  const auto count = sized<size_t>(device, 30, 6);
  GenerateRequest request = make_request(1, 4, static_cast<int64_t>(count), model.config.vocabulary, {});
  const Finished free_run = generate(weights, {1, 16, 4096}, {request}).at(1);
  CHECK(free_run.finish == FinishReason::length);
  CHECK(free_run.records.size() == count);

  request.stop_tokens = {free_run.records.tokens[count / 3], 1000};
  const Finished stopped = generate(weights, {1, 16, 4096}, {request}).at(1);
  const auto& drawn = free_run.records.tokens;
  const auto first = std::find(drawn.begin(), drawn.end(), request.stop_tokens[0]);
  CHECK(stopped.finish == FinishReason::stop);
  CHECK(stopped.records.tokens == std::vector<int32_t>(drawn.begin(), first + 1));

  request.stop_tokens = {drawn[0]};
  request.max_new_tokens = 1;
  CHECK(generate(weights, {1, 16, 4096}, {request}).at(1).finish == FinishReason::stop);

  GenerateRequest last = make_request(2, model.config.max_positions - 3, 30, model.config.vocabulary, {});
  const Finished full = generate(weights, {1, 16, 4096}, {last}).at(2);
  CHECK(full.finish == FinishReason::length);
  CHECK(full.records.size() == 3);
}

TEST_CASE("slots are given first come, first served", "[engine]") {
  const Model model = make_model(grouped_tied(), 54);
  Engine engine(sampler_weights(model, plain_profile("fp32")), {2, 16, 8});
  CHECK(engine.idle());
  CHECK(engine.step().empty());
  for (uint64_t id = 1; id <= 4; ++id) engine.submit(make_request(id, 6, 2, model.config.vocabulary, {}));
  CHECK(engine.waiting() == 4);
  // Two prompts of 6 do not fit 8 rows: the second comes with the next step.
  auto outputs = engine.step();
  REQUIRE(outputs.size() == 1);
  CHECK(outputs[0].id == 1);
  CHECK(outputs[0].records.size() == 1);
  outputs = engine.step();
  REQUIRE(outputs.size() == 2);
  CHECK(outputs[0].finish == FinishReason::length);
  CHECK(outputs[1].id == 2);
  CHECK(engine.running() == 1);
  CHECK(engine.waiting() == 2);
  outputs = engine.step();
  REQUIRE(outputs.size() == 2);
  CHECK(outputs[1].id == 3);
  CHECK_FALSE(engine.idle());
  drain(engine);
  CHECK(engine.idle());
  CHECK(engine.running() == 0);
}

TEST_CASE("cancelling drops a request wherever it is", "[engine]") {
  const Model model = make_model(grouped_tied(), 55);
  const auto weights = sampler_weights(model, plain_profile("bf16"));
  const auto requests = seven_requests(10, model.config.vocabulary, {});
  Engine engine(weights, {3, 4, 4096});
  for (const GenerateRequest& request : requests) engine.submit(request);
  std::map<uint64_t, Finished> finished;
  collect(engine.step(), finished);
  CHECK(engine.cancel(2));  // running
  CHECK(engine.cancel(6));  // waiting
  CHECK_FALSE(engine.cancel(6));
  CHECK_FALSE(engine.cancel(99));
  CHECK(engine.running() == 2);
  CHECK(engine.waiting() == 3);
  engine.submit(requests[1]);  // the id is free again
  while (!engine.idle()) collect(engine.step(), finished);
  const auto expected = generate(weights, {7, 16, 4096}, requests);
  CHECK(finished.count(6) == 0);
  CHECK(finished.at(2).records.size() == 11);  // one before it was cancelled
  for (const uint64_t id : {1, 3, 4, 5, 7}) CHECK(finished.at(id) == expected.at(id));
}

TEST_CASE("requests that can never run are refused", "[engine]") {
  const Model model = make_model(grouped_tied(), 56);
  const auto weights = sampler_weights(model, plain_profile("fp32"));
  Engine engine(weights, {2, 16, 4096});
  const GenerateRequest good = make_request(1, 4, 2, model.config.vocabulary, {});
  const auto refused = [&](auto change) {
    GenerateRequest bad = good;
    change(bad);
    CHECK_THROWS_AS(engine.submit(bad), std::invalid_argument);
  };
  refused([](GenerateRequest& r) { r.tokens.clear(); });
  refused([](GenerateRequest& r) { r.tokens[1] = -1; });
  refused([](GenerateRequest& r) { r.tokens[1] = 11; });
  refused([](GenerateRequest& r) { r.tokens.assign(160, 1); });
  refused([](GenerateRequest& r) { r.max_new_tokens = 0; });
  refused([](GenerateRequest& r) { r.rule.temperature = -1.0; });
  refused([](GenerateRequest& r) { r.rule.temperature = std::nan(""); });
  refused([](GenerateRequest& r) { r.rule.temperature = std::numeric_limits<double>::infinity(); });
  refused([](GenerateRequest& r) { r.rule.top_p = 0.0; });
  refused([](GenerateRequest& r) { r.rule.top_p = 1.5; });
  refused([](GenerateRequest& r) { r.rule.top_p = std::nan(""); });
  refused([](GenerateRequest& r) { r.rule.top_k = -1; });
  refused([](GenerateRequest& r) { r.record = RecordKind::top_k, r.record_top_k = 0; });
  refused([](GenerateRequest& r) { r.vocabulary = 0; });
  refused([](GenerateRequest& r) { r.vocabulary = 12; });
  CHECK(engine.idle());
  engine.submit(good);
  CHECK_THROWS_AS(engine.submit(good), std::invalid_argument);
  engine.step();
  CHECK_THROWS_AS(engine.submit(good), std::invalid_argument);
  engine.step();
  CHECK(engine.idle());
  engine.submit(good);

  CHECK_THROWS_AS(Engine(nullptr, {}), std::invalid_argument);
  CHECK_THROWS_AS(Engine(weights, EngineLimits{0, 16, 16}), std::invalid_argument);
  CHECK_THROWS_AS(Engine(weights, EngineLimits{1, 0, 16}), std::invalid_argument);
  CHECK_THROWS_AS(Engine(weights, EngineLimits{1, 16, 0}), std::invalid_argument);
}

/// log p of `tokens` with weights `first` up to the cache's row `switch_row`, and `second` from there on.
std::vector<float> two_version_score(const SamplerWeights& first, const SamplerWeights& second,
                                     const std::vector<int32_t>& tokens, int64_t switch_row) {
  const TransformerConfig& config = first.config();
  const RopeTable table(config.max_positions, config.head_dim, config.rope_theta, DType::f32, first.device());
  KvCache cache(config, first.profile(), 16, 1, first.device());
  CachedSequence sequence;
  std::vector<float> log_p;
  const auto run = [&](const SamplerWeights& weights, int64_t end) {
    sequence.tokens.assign(tokens.begin(), tokens.begin() + end);
    PassLists lists(weights.device());
    EngineContext context(weights, cache, table, lists);
    std::vector<CachedSequence*> pointers{&sequence};
    forward_missing(context, config, cache, pointers, 4096, [&](const Tensor& hidden, std::span<const CachedRow> rows) {
      auto query = std::make_shared<HeadQuery>();
      query->selected_offsets = {0};
      for (const CachedRow& row : rows) {
        query->selected_ids.push_back(tokens[static_cast<size_t>(row.position) + 1]);
        query->selected_offsets.push_back(static_cast<int64_t>(query->selected_ids.size()));
      }
      const NoGrad no_grad;
      const Tensor piece = selected_log_probs(hidden, weights.head_weight(), query).log_p.to(kCpu);
      log_p.insert(log_p.end(), piece.span<float>().begin(), piece.span<float>().end());
    });
    sequence.cached = end;
  };
  run(first, switch_row);
  run(second, static_cast<int64_t>(tokens.size()) - 1);
  return log_p;
}

TEST_CASE("a swap in mid-sequence keeps the cache and stamps every token with its own version", "[engine][device]") {
  const Device device = every_device();
  INFO(kernels::device_name(device));
  const TransformerConfig config = sized(device, grouped_tied(), smallest());
  const Model model = make_model(config, 57);
  const auto profile = plain_profile("bf16");
  const auto old_weights = sampler_weights(model, profile, 1, device);
  const auto new_weights = sampler_weights(make_model(config, 58), profile, 2, device);
  const GenerateRequest request = make_request(1, 9, 12, model.config.vocabulary, {});
  Engine engine(old_weights, {1, 4, 4096});
  engine.submit(request);
  std::map<uint64_t, Finished> finished;
  for (int i = 0; i < 5; ++i) collect(engine.step(), finished);
  CHECK(engine.version() == 1);
  engine.set_weights(new_weights);
  CHECK(engine.version() == 2);
  while (!engine.idle()) collect(engine.step(), finished);
  const TokenRecords& records = finished.at(1).records;
  CHECK(records.versions == std::vector<uint64_t>{1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2});

  // The fifth token was drawn, but its own row had not been computed when the weights changed.
  const std::vector<int32_t> tokens = whole(request, records);
  const auto expected = two_version_score(*old_weights, *new_weights, tokens, 9 + 4);
  CHECK(bits(records.log_q) == drawn_bits(expected, 9));
  const auto drawn = [&](const auto& weights) { return drawn_bits(Engine(weights, {}).score({tokens}, 1.0)[0], 9); };
  const auto recorded = bits(records.log_q), by_old = drawn(old_weights), by_new = drawn(new_weights);
  CHECK(std::equal(by_old.begin(), by_old.begin() + 5, recorded.begin()));
  CHECK(recorded[5] != by_old[5]);
  CHECK(recorded[5] != by_new[5]);
}

TEST_CASE("swapping between all steps gives every token one version", "[engine]") {
  const auto profile = plain_profile("bf16");
  const std::shared_ptr<const SamplerWeights> pair[] = {sampler_weights(make_model(grouped_tied(), 61), profile, 10),
                                                        sampler_weights(make_model(grouped_tied(), 62), profile, 11)};
  const auto requests = seven_requests(12, grouped_tied().vocabulary, {1.0, 0.9, 0});
  Engine engine(pair[0], {4, 16, 4096});
  for (const GenerateRequest& request : requests) engine.submit(request);
  std::map<uint64_t, Finished> finished;
  for (uint64_t step = 0; !engine.idle(); ++step) {
    engine.set_weights(pair[step % 2]);
    const auto outputs = engine.step();
    for (const StepOutput& output : outputs) {
      CHECK(output.records.versions == std::vector<uint64_t>{10 + step % 2});
      CHECK(std::isfinite(output.records.log_q.front()));
    }
    collect(outputs, finished);
  }
  for (const GenerateRequest& request : requests) CHECK(finished.at(request.id).records.size() == 12);
}

TEST_CASE("weights of another model or profile are refused", "[engine]") {
  const Model model = make_model(grouped_tied(), 59);
  Engine engine(sampler_weights(model, plain_profile("bf16")), {});
  CHECK_THROWS_AS(engine.set_weights(nullptr), std::invalid_argument);
  CHECK_THROWS_AS(engine.set_weights(sampler_weights(model, plain_profile("fp16"))), std::invalid_argument);
  CHECK_THROWS_AS(engine.set_weights(sampler_weights(make_model(even_normed(), 1), plain_profile("bf16"))),
                  std::invalid_argument);
}

TEST_CASE("NaN logits end their own request only, and freed pages do no harm", "[engine][device]") {
  const Device device = every_device();
  INFO(kernels::device_name(device));
  Model model = make_model(odd_untied(), 60);
  const auto clean = sampler_weights(model, plain_profile("bf16"), 1, device);
  float* row = model.parameters.at("model.embed_tokens.weight").data<float>() + kPoison * model.config.width;
  std::fill(row, row + model.config.width, std::numeric_limits<float>::quiet_NaN());
  const auto weights = sampler_weights(model, plain_profile("bf16"), 1, device);
  auto requests = seven_requests(sized(device, 10, 2), kPoison, {1.0, 0.9, 0});
  for (GenerateRequest& request : requests) request.vocabulary = kPoison;
  const auto expected = generate(clean, {7, 4, 4096}, requests);

  Engine engine(weights, {4, 4, 4096});
  for (uint64_t id = 11; id <= 14; ++id) {
    GenerateRequest bad = make_request(id, 37, 5, kPoison, {});
    bad.tokens[static_cast<size_t>(id) % 3] = kPoison;
    engine.submit(bad);
    engine.submit(requests[static_cast<size_t>(id) - 11]);
  }
  for (size_t i = 4; i < 7; ++i) engine.submit(requests[i]);
  const auto finished = drain(engine);
  for (const GenerateRequest& request : requests) CHECK(finished.at(request.id) == expected.at(request.id));
  for (uint64_t id = 11; id <= 14; ++id) {
    CHECK(finished.at(id).finish == FinishReason::failed);
    CHECK(finished.at(id).records.size() == 0);
    CHECK(finished.at(id).error.find("NaN") != std::string::npos);
  }
}

TEST_CASE("pages come back however a request ends", "[engine]") {
  const Model model = make_model(grouped_tied(), 63);
  const int64_t vocabulary = model.config.vocabulary;
  // One slot: room for one sequence of all positions, so that a lost page shows as a full cache.
  Engine engine(sampler_weights(model, plain_profile("bf16")), {1, 4, 4096});
  for (uint64_t round = 0; round < 5; ++round) {
    engine.submit(make_request(1, 100, 20, vocabulary, {}));
    engine.step();
    CHECK(engine.cancel(1));
    engine.submit(make_request(2, 150, 100, vocabulary, {}));
    CHECK(drain(engine).at(2).records.size() == 10);
  }
}

TEST_CASE("pages are taken as needed and used again", "[engine]") {
  const TransformerConfig config = grouped_tied().resolved();
  KvCache cache(config, plain_profile("bf16"), 4, 2);
  CHECK(cache.pages_allocated() == 0);
  std::vector<int32_t> first, second;
  cache.extend(first, 1);
  cache.extend(first, 4);
  CHECK(first.size() == 1);
  cache.extend(first, 5);
  CHECK(first.size() == 2);
  CHECK(cache.pages_allocated() == 16);
  cache.extend(second, 160);
  CHECK(second.size() == 40);
  CHECK(cache.pages_in_use() == 42);
  std::vector<int32_t> all(first);
  all.insert(all.end(), second.begin(), second.end());
  std::sort(all.begin(), all.end());
  CHECK(std::adjacent_find(all.begin(), all.end()) == all.end());
  cache.extend(first, 160);
  CHECK(cache.pages_allocated() == 80);
  std::vector<int32_t> third;
  CHECK_THROWS_AS(cache.extend(third, 1), std::runtime_error);
  cache.release(second);
  CHECK(second.empty());
  cache.extend(third, 160);
  CHECK(cache.pages_in_use() == 80);
}

}  // namespace
}  // namespace motley
