// The bitwise profile: what an engine of the trainer's own profile records while it decodes is, bit for bit, what the
// trainer computes on the finished sequence.
#include <catch2/catch.hpp>

#include "tests/tensor/engine_fixture.h"

namespace motley {
namespace {

using namespace test;

/// log p of every drawn token by the trainer, all sequences packed into one pass, candidate sets replayed.
std::map<uint64_t, std::vector<uint32_t>> trainer_bits(const Model& model, const kernels::NumericProfile& profile,
                                                       const std::vector<GenerateRequest>& requests,
                                                       const std::map<uint64_t, Finished>& finished, bool candidates,
                                                       const Device& device = {}) {
  const NoGrad no_grad;
  PackedSequences packed;
  std::vector<int64_t> rows;
  auto query = std::make_shared<HeadQuery>();
  query->temperature = requests.front().rule.temperature;
  query->selected_offsets = {0};
  if (candidates) query->candidate_offsets = {0};
  for (const GenerateRequest& request : requests) {
    const TokenRecords& records = finished.at(request.id).records;
    const int64_t first = packed.starts.back() + static_cast<int64_t>(request.tokens.size()) - 1;
    packed.append(whole(request, records));
    for (size_t t = 0; t < records.size(); ++t) {
      rows.push_back(first + static_cast<int64_t>(t));
      query->selected_ids.push_back(records.tokens[t]);
      query->selected_offsets.push_back(static_cast<int64_t>(query->selected_ids.size()));
      if (!candidates) continue;
      query->candidate_ids.insert(query->candidate_ids.end(), records.ids.begin() + records.offsets[t],
                                  records.ids.begin() + records.offsets[t + 1]);
      query->candidate_offsets.push_back(static_cast<int64_t>(query->candidate_ids.size()));
    }
  }
  const RopeTable table(model.config.max_positions, model.config.head_dim, model.config.rope_theta, DType::f32, device);
  const Parameters parameters = model.parameters.clone(device);
  TrainerContext context(model.config, parameters, profile, table);
  const Tensor hidden = gather_rows(trainer_hidden(model.config, context, packed), rows);
  const Tensor log_p =
      selected_log_probs(hidden, context.parameter(head_weight_name(model.config)), query).log_p.to(kCpu);
  std::map<uint64_t, std::vector<uint32_t>> result;
  size_t next = 0;
  for (const GenerateRequest& request : requests) {
    const size_t count = finished.at(request.id).records.size();
    result[request.id] = bits(std::span<const float>(log_p.span<float>()).subspan(next, count));
    next += count;
  }
  return result;
}

void check_bitwise(const Model& model, const kernels::NumericProfile& profile, kernels::SamplingRule rule,
                   const EngineLimits& limits, const Device& device = {}) {
  const auto requests = sized(device, seven_requests(24, model.config.vocabulary, rule), three_requests(rule));
  const bool truncated = rule.top_p < 1.0 || rule.top_k > 0;
  const auto weights = sampler_weights(model, profile, 1, device);
  const auto together = generate(weights, limits, requests);
  const auto trainer = trainer_bits(model, profile, requests, together, truncated, device);
  for (const GenerateRequest& request : requests) {
    const Finished& f = together.at(request.id);
    REQUIRE(f.finish == FinishReason::length);
    REQUIRE(static_cast<int64_t>(f.records.size()) == request.max_new_tokens);
    REQUIRE(f.records.consistent(model.config.vocabulary));
    CHECK(bits(f.records.log_q) == trainer.at(request.id));
    CHECK(generate(weights, limits, {request}).at(request.id) == f);
    CHECK(trainer_bits(model, profile, {request}, together, truncated, device).at(request.id) ==
          trainer.at(request.id));
  }
}

TEST_CASE("the engine records the trainer's own log-probabilities", "[bitwise]") {
  const auto* name = GENERATE("fp32", "bf16", "fp16");
  const int64_t page_size = GENERATE(4, 16);
  const std::vector<TransformerConfig> configs{grouped_tied(), odd_untied(), even_normed()};
  const EngineLimits limits{7, page_size, 4096};
  uint64_t seed = 20;
  for (const TransformerConfig& config : configs) {
    const Model model = make_model(config, ++seed);
    for (const kernels::SamplingRule rule : {kernels::SamplingRule{1.0, 1.0, 0}, kernels::SamplingRule{0.6, 1.0, 0},
                                             kernels::SamplingRule{1.0, 0.9, 0}, kernels::SamplingRule{0.6, 0.9, 5}}) {
      INFO(name << ", page " << page_size << ", vocabulary " << config.vocabulary << ", T " << rule.temperature
                << ", top-p " << rule.top_p);
      check_bitwise(model, plain_profile(name), rule, limits);
    }
  }
}

TEST_CASE("the engine records the log-probabilities of the trainer of its own device", "[bitwise][device]") {
  const Device device = other_device();
  int done = 0;
  for (const char* name : {"bf16", "fp32"}) {
    if (enough(done++)) break;
    INFO(name << " on " << kernels::device_name(device));
    check_bitwise(make_model(smallest(), 43), plain_profile(name), {0.6, 0.9, 0}, {3, 2, 4096}, device);
  }
}

TEST_CASE("reduction tiles and a narrow KV cache keep the bitwise profile", "[bitwise]") {
  kernels::NumericProfile profile = plain_profile("bf16");
  profile.k_tile = GENERATE(0, 16);
  profile.kv_cache = GENERATE(kernels::Format::bf16, kernels::Format::e4m3);
  profile.kv_scale = profile.kv_cache == kernels::Format::e4m3 ? 0.125 : 1.0;
  check_bitwise(make_model(grouped_tied(), 31), profile, {1.0, 0.95, 0}, {7, 4, 4096});
}

TEST_CASE("prefills cut into pieces change nothing", "[bitwise]") {
  check_bitwise(make_model(even_normed(), 32), plain_profile("bf16"), {1.0, 1.0, 0}, {3, 4, 13});
}

TEST_CASE("weights swapped out and back between two decode steps change nothing", "[bitwise]") {
  const auto* name = GENERATE("fp32", "bf16", "fp16");
  const Model model = make_model(grouped_tied(), 41);
  const Model other = make_model(grouped_tied(), 42);
  const auto profile = plain_profile(name);
  const auto requests = seven_requests(20, model.config.vocabulary, {0.6, 0.9, 0});
  Engine engine(sampler_weights(model, profile), {7, 4, 4096});
  for (const GenerateRequest& request : requests) engine.submit(request);
  std::map<uint64_t, Finished> finished;
  while (!engine.idle()) {
    collect(engine.step(), finished);
    engine.set_weights(sampler_weights(other, profile, 2));
    engine.set_weights(sampler_weights(model, profile, 1));
  }
  const auto trainer = trainer_bits(model, profile, requests, finished, true);
  for (const GenerateRequest& request : requests) {
    CHECK(bits(finished.at(request.id).records.log_q) == trainer.at(request.id));
  }
  CHECK(finished == generate(sampler_weights(model, profile), {7, 4, 4096}, requests));
}

}  // namespace
}  // namespace motley
