// The decoding engine on another device must record what it records on the CPU, bit for bit.
#include <catch2/catch.hpp>
#include <set>

#include "kernels/quantized_rows.h"
#include "tests/tensor/engine_fixture.h"

namespace motley {
namespace {

using namespace test;

TEST_CASE("every profile that a device computes has the CPU's bits there", "[device]") {
  const Device there = other_device();
  const Model model = make_model(smallest(), 3);
  int compared = 0;
  std::set<std::string> known;  // several accelerators have the same numbers
  for (const kernels::NumericProfile& profile : kernels::profiles()) {
    INFO(profile.name);
    if (!known.insert(describe(profile)).second || enough(compared)) continue;
    if (!kernels::refusal_on_devices(profile).empty()) {
      CHECK_THROWS_WITH(sampler_weights(model, profile, 1, there),
                        Catch::Contains(profile.name) && Catch::Contains("on " + kernels::device_name(there)));
      continue;
    }
    ++compared;
    const auto here = sampler_weights(model, profile), other = sampler_weights(model, profile, 1, there);
    CHECK(other->device() == there);
    CHECK(other->fingerprints() == here->fingerprints());
    const EngineLimits limits{.max_sequences = 3, .page_size = 2};
    std::vector<GenerateRequest> requests = three_requests({1.0, 0.9, 0});
    for (GenerateRequest& request : requests) request.max_new_tokens = 2;
    CHECK(generate(other, limits, requests) == generate(here, limits, requests));
  }
  CHECK((compared >= 10 || enough(compared)));
}

TEST_CASE("every kind of record, and a row without a distribution, on the other device", "[device]") {
  const Device there = other_device();
  Model model = make_model(smallest(), 6);
  const auto run = [&](const Device& device) {
    std::vector<GenerateRequest> all;
    for (const RecordKind kind : {RecordKind::sampled, RecordKind::candidates, RecordKind::top_k, RecordKind::full}) {
      all.push_back(make_request(all.size() + 1, 3, 2, 11, {0.7, 1.0, 0}));
      all.back().record = kind;
      all.back().record_top_k = 4;
    }
    all.push_back(make_request(5, 3, 2, 11, {0.0, 1.0, 0}));  // greedy
    all.push_back(make_request(6, 3, 2, 11, {1.0, 1.0, 3}));
    all.push_back(make_request(7, 3, 2, 7, {1.0, 1.0, 0}));
    all.back().vocabulary = 7;
    return generate(sampler_weights(model, plain_profile("fp32"), 1, device), {.max_sequences = 7, .page_size = 4},
                    all);
  };
  const auto drawn = run({});
  CHECK(run(there) == drawn);
  CHECK(drawn.at(2).records.ids.size() == 2 * 11);
  model.parameters.at("model.norm.weight").data<float>()[0] = NAN;
  const auto failed = run({});
  CHECK(run(there) == failed);
  CHECK(failed.at(1).finish == FinishReason::failed);
}

TEST_CASE("scores, swapped weights and a growing cache on the other device have the CPU's bits", "[device]") {
  const Device there = other_device();
  const Model model = make_model(smallest(), 4), other = make_model(smallest(), 5);
  const auto run = [&](const Device& device) {
    const auto first = sampler_weights(model, plain_profile("bf16"), 1, device);
    Engine engine(first, {.max_sequences = 3, .page_size = 1});
    const auto scores = engine.score({{1, 2, 3, 4}, {5}, {6, 7}}, 0.7);
    std::vector<std::vector<uint32_t>> score_bits;
    for (const auto& score : scores) score_bits.push_back(bits(score));
    std::map<uint64_t, Finished> finished;
    engine.submit(make_request(9, 30, 3, 11, {1.0, 1.0, 0}));
    collect(engine.step(), finished);  // 31 of 32 pages hold something when the cache grows
    for (const GenerateRequest& request : three_requests({1.0, 1.0, 0})) engine.submit(request);
    collect(engine.step(), finished);
    engine.set_weights(sampler_weights(other, plain_profile("bf16"), 2, device));
    while (!engine.idle()) collect(engine.step(), finished);
    CHECK(engine.stats().allocated_pages > 32);
    engine.check_pages();
    return std::pair(score_bits, finished);
  };
  CHECK(run(there) == run({}));
}

TEST_CASE("an engine does not take weights of another device", "[device]") {
  const Device there = other_device();
  const Model model = make_model(smallest(), 4);
  Engine engine(sampler_weights(model, plain_profile("bf16"), 1, there), {.max_sequences = 1});
  CHECK_THROWS_WITH(engine.set_weights(sampler_weights(model, plain_profile("bf16"))), "weights on another device");
}

}  // namespace
}  // namespace motley
