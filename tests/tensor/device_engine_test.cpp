// The decoding engine on another device: where no product is on matrix units it must record what it records on the CPU,
// bit for bit; on units its records are its own, and near the CPU's.
#include <catch2/catch.hpp>
#include <set>

#include "kernels/product_body.h"
#include "tests/tensor/engine_fixture.h"

namespace motley {
namespace {

using namespace test;

TEST_CASE("profiles that use no matrix units have the CPU's bits on the other device", "[device]") {
  const Device there = other_device();
  const Model model = make_model(smallest(), 3);
  int compared = 0;
  std::set<std::string> known;  // several accelerators have the same numbers
  for (const kernels::NumericProfile& profile : kernels::profiles()) {
    INFO(profile.name);
    if (!known.insert(describe(profile)).second || enough(compared)) continue;
    if (product_body(profile, there) == kernels::ProductBody::matrix_units) continue;
    ++compared;
    const auto here = sampler_weights(model, profile), other = sampler_weights(model, profile, 1, there);
    CHECK(other->device() == there);
    CHECK(other->fingerprints() == here->fingerprints());
    const EngineLimits limits{.max_sequences = 3, .page_size = 2};
    std::vector<GenerateRequest> requests = three_requests({1.0, 0.9, 0});
    for (GenerateRequest& request : requests) request.max_new_tokens = 2;
    CHECK(generate(other, limits, requests) == generate(here, limits, requests));
  }
  CHECK((compared >= 9 || enough(compared)));
}

TEST_CASE("profiles on matrix units score what they drew, in any batch, and stay near the CPU", "[device]") {
  const Device there = other_device();
  TransformerConfig wider = smallest();  // several steps of a matrix unit: its sums are not the CPU's
  wider.width = 48, wider.ffn = 72;
  const Model model = make_model(wider, 3);
  const std::vector<GenerateRequest> all = three_requests({1.0, 1.0, 0});
  int done = 0;
  for (const char* name : {"a100-bf16", "h100-fp8", "b200-nvfp4", "b200-nvfp4-w4a4"}) {
    if (enough(done++)) continue;
    INFO(name);
    kernels::NumericProfile profile = *kernels::find_profile(name);
    profile.output = DType::f32;  // or bf16 would hide almost every difference of the sums
    REQUIRE(product_body(profile, there) == kernels::ProductBody::matrix_units);
    const auto weights = sampler_weights(model, profile, 1, there);
    const auto finished = generate(weights, {.max_sequences = 3, .page_size = 2}, all);
    std::vector<std::vector<int32_t>> sequences;
    for (const GenerateRequest& request : all) {
      const Finished& f = finished.at(request.id);
      CHECK(generate(weights, {.max_sequences = 1, .page_size = 4}, {request}).at(request.id) == f);
      sequences.push_back(whole(request, f.records));
    }
    Engine engine(weights, {.max_sequences = 3, .page_size = 2}),
        cpu(sampler_weights(model, profile), {.max_sequences = 3});
    const auto scores = engine.score(sequences, 1.0), expected = cpu.score(sequences, 1.0);
    double largest = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      CHECK(drawn_bits(scores[i], all[i].tokens.size()) == bits(finished.at(all[i].id).records.log_q));
      for (size_t t = 0; t < scores[i].size(); ++t)
        largest = std::max(largest, std::fabs(static_cast<double>(scores[i][t]) - expected[i][t]));
    }
    // Sums differ by some 2^-22 of their size, and 5e-7 is what comes of it here. A value that a format rounds to its
    // other neighbour would add a part of that format's precision.
    CHECK(largest < 1e-5);
    if (name == std::string("a100-bf16")) CHECK(largest > 0);  // fp8 and fp4 sums are exact in either
  }
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
