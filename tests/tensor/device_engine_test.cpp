// The decoding engine on a device other than the CPU: `emulated` must record what the CPU records, bit for bit.
#include <catch2/catch.hpp>

#include "kernels/quantized_rows.h"
#include "tests/tensor/engine_fixture.h"

namespace motley {
namespace {

using namespace test;

const Device kEmulated{kernels::DeviceKind::emulated, 0};

TransformerConfig small() {
  TransformerConfig c;
  c.vocabulary = 11, c.layers = 1, c.width = 16, c.heads = 2, c.kv_heads = 1, c.head_dim = 8, c.ffn = 20;
  c.qk_norm = true;
  c.max_positions = 40;
  return c;
}

std::shared_ptr<const SamplerWeights> weights_on(const Device& device, const Model& model,
                                                 const kernels::NumericProfile& profile, uint64_t version = 1) {
  return std::make_shared<SamplerWeights>(model.config, model.parameters, profile, version, device);
}

/// Two that share a prompt, and one whose pages grow beyond the first 16 of the cache.
std::vector<GenerateRequest> requests(kernels::SamplingRule rule) {
  std::vector<GenerateRequest> all{make_request(1, 5, 3, 11, rule), make_request(2, 2, 4, 11, rule),
                                   make_request(3, 1, 3, 11, rule)};
  all[2].tokens = all[0].tokens;
  return all;
}

TEST_CASE("every profile that a device computes has the CPU's bits on the emulated device") {
  const Model model = make_model(small(), 3);
  int compared = 0;
  for (const kernels::NumericProfile& profile : kernels::profiles()) {
    INFO(profile.name);
    if (!kernels::refusal_on_devices(profile).empty()) {
      CHECK_THROWS_WITH(weights_on(kEmulated, model, profile),
                        Catch::Contains(profile.name) && Catch::Contains("on emulated"));
      continue;
    }
    ++compared;
    const auto here = weights_on({}, model, profile), there = weights_on(kEmulated, model, profile);
    CHECK(there->device() == kEmulated);
    CHECK(there->fingerprints() == here->fingerprints());
    const EngineLimits limits{.max_sequences = 3, .page_size = 2};
    CHECK(generate(there, limits, requests({1.0, 0.9, 0})) == generate(here, limits, requests({1.0, 0.9, 0})));
  }
  CHECK(compared >= 4);
}

TEST_CASE("every kind of record, and a row without a distribution, on the emulated device") {
  Model model = make_model(small(), 6);
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
    return generate(weights_on(device, model, plain_profile("fp32")), {.max_sequences = 7, .page_size = 4}, all);
  };
  const auto drawn = run({});
  CHECK(run(kEmulated) == drawn);
  CHECK(drawn.at(2).records.ids.size() == 2 * 11);
  model.parameters.at("model.norm.weight").data<float>()[0] = NAN;
  const auto failed = run({});
  CHECK(run(kEmulated) == failed);
  CHECK(failed.at(1).finish == FinishReason::failed);
}

TEST_CASE("scores, swapped weights and a growing cache on the emulated device have the CPU's bits") {
  const Model model = make_model(small(), 4), other = make_model(small(), 5);
  const auto run = [&](const Device& device) {
    const auto first = weights_on(device, model, plain_profile("bf16"));
    Engine engine(first, {.max_sequences = 3, .page_size = 1});
    const auto scores = engine.score({{1, 2, 3, 4}, {5}, {6, 7}}, 0.7);
    std::vector<std::vector<uint32_t>> score_bits;
    for (const auto& score : scores) score_bits.push_back(bits(score));
    std::map<uint64_t, Finished> finished;
    engine.submit(make_request(9, 30, 3, 11, {1.0, 1.0, 0}));
    collect(engine.step(), finished);  // 31 of 32 pages hold something when the cache grows
    for (const GenerateRequest& request : requests({1.0, 1.0, 0})) engine.submit(request);
    collect(engine.step(), finished);
    engine.set_weights(weights_on(device, other, plain_profile("bf16"), 2));
    while (!engine.idle()) collect(engine.step(), finished);
    CHECK(engine.stats().allocated_pages > 32);
    engine.check_pages();
    return std::pair(score_bits, finished);
  };
  CHECK(run(kEmulated) == run({}));
}

TEST_CASE("an engine does not take weights of another device") {
  const Model model = make_model(small(), 4);
  Engine engine(weights_on(kEmulated, model, plain_profile("bf16")), {.max_sequences = 1});
  CHECK_THROWS_WITH(engine.set_weights(weights_on({}, model, plain_profile("bf16"))), "weights on another device");
}

}  // namespace
}  // namespace motley
