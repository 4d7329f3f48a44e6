// What the engine records about its draws, and that scoring and decoding agree in every numeric profile.
#include "tensor/engine_records.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <set>

#include "tests/tensor/engine_fixture.h"

namespace motley {
namespace {

using namespace test;

TEST_CASE("every invariant profile decodes independently of its batch, and scores what it decoded", "[engine]") {
  std::set<std::string> seen;
  const Model models[] = {make_model(grouped_tied(), 71), make_model(odd_untied(), 72)};
  for (const kernels::NumericProfile& profile : kernels::profiles()) {
    if (!profile.invariant || profile.output == DType::f64) continue;
    INFO(profile.name);
    seen.insert(profile.name);
    const Model& model = models[seen.size() % 2];
    const auto weights = sampler_weights(model, profile);
    const double temperature = seen.size() % 3 == 0 ? 0.6 : 1.0;
    const auto requests = seven_requests(8, model.config.vocabulary, {temperature, 1.0, 0});
    const auto together = generate(weights, {7, 16, 4096}, requests);
    std::vector<std::vector<int32_t>> sequences;
    for (const GenerateRequest& request : requests) {
      CHECK(generate(weights, {1, 4, 4096}, {request}).at(request.id) == together.at(request.id));
      sequences.push_back(whole(request, together.at(request.id).records));
    }
    Engine whole_pass(weights, {1, 16, 4096}), cut(weights, {1, 4, 19});
    const auto scores = whole_pass.score(sequences, temperature);
    CHECK(cut.score(sequences, temperature) == scores);
    for (size_t s = 0; s < requests.size(); ++s) {
      CHECK(scores[s].size() + 1 == sequences[s].size());
      CHECK(drawn_bits(scores[s], requests[s].tokens.size()) == bits(together.at(requests[s].id).records.log_q));
    }
  }
  for (const auto* name : {"b200-nvfp4", "h100-fp8", "a100-bf16"}) CHECK(seen.count(name) == 1);
}

TEST_CASE("scoring handles odd input and leaves running requests alone", "[engine]") {
  const Model model = make_model(grouped_tied(), 73);
  const auto weights = sampler_weights(model, plain_profile("bf16"));
  Engine engine(weights, {2, 16, 4096});
  CHECK(engine.score({}, 1.0).empty());
  const auto edges = engine.score({{}, {3}, {3, 4}}, 1.0);
  REQUIRE(edges.size() == 3);
  CHECK(edges[0].empty());
  CHECK(edges[1].empty());
  CHECK(edges[2].size() == 1);
  CHECK(engine.score({std::vector<int32_t>(160, 2)}, 1.0)[0].size() == 159);
  CHECK_THROWS_AS(engine.score({std::vector<int32_t>(161, 2)}, 1.0), std::invalid_argument);
  CHECK_THROWS_AS(engine.score({{1, 11}}, 1.0), std::invalid_argument);
  CHECK_THROWS_AS(engine.score({{1, -1}}, 1.0), std::invalid_argument);
  CHECK_THROWS_AS(engine.score({{1, 2}}, 0.0), std::invalid_argument);
  CHECK_THROWS_AS(engine.score({{1, 2}}, std::nan("")), std::invalid_argument);

  const auto requests = seven_requests(10, model.config.vocabulary, {});
  for (const GenerateRequest& request : requests) engine.submit(request);
  std::map<uint64_t, Finished> finished;
  while (!engine.idle()) {
    collect(engine.step(), finished);
    engine.score({{1, 2, 3, 4, 5}, {5, 4, 3}}, 0.7);
  }
  CHECK(finished == generate(weights, {2, 16, 4096}, requests));
}

/// A chain: the next token depends on the last one alone, with the given probabilities. Attention and feed-forward are
/// zero, embeddings are one-hot; RMSNorm makes sqrt(4) = 2 of the one, which the head divides out again.
Model chain_model(const double (&probability)[4][4]) {
  TransformerConfig config;
  config.vocabulary = 4, config.layers = 1, config.width = 4, config.heads = 1, config.kv_heads = 1;
  config.ffn = 4, config.tied_head = false, config.max_positions = 32;
  Model model{config.resolved(), Parameters::zeros(config.resolved())};
  for (const std::string& name : model.parameters.names()) {
    Tensor& tensor = model.parameters.at(name);
    if (tensor.shape().size() == 1) std::fill_n(tensor.data<float>(), tensor.numel(), 1.0f);
  }
  float* embedding = model.parameters.at("model.embed_tokens.weight").data<float>();
  float* head = model.parameters.at(head_weight_name(model.config)).data<float>();
  for (int from = 0; from < 4; ++from) {
    embedding[from * 4 + from] = 1.0f;
    for (int to = 0; to < 4; ++to) head[to * 4 + from] = static_cast<float>(std::log(probability[from][to]) / 2.0);
  }
  return model;
}

TEST_CASE("entry i belongs to token i, the first one included", "[engine]") {
  const double probability[4][4] = {
      {0.04, 0.9, 0.04, 0.02}, {0.2, 0.2, 0.5, 0.1}, {0.6, 0.2, 0.1, 0.1}, {0.25, 0.25, 0.25, 0.25}};
  const auto weights = sampler_weights(chain_model(probability), plain_profile("fp32"));
  Engine engine(weights, {1, 4, 64});
  // eps of the norm (1e-6 against a mean square of 1/4) and float rounding: 1e-5 relative to log-probabilities of
  // order 1.
  const auto score = engine.score({{0, 1, 2, 3}}, 1.0)[0];
  REQUIRE(score.size() == 3);
  CHECK(score[0] == Approx(std::log(0.9)).margin(2e-5));
  CHECK(score[1] == Approx(std::log(0.5)).margin(2e-5));
  CHECK(score[2] == Approx(std::log(0.1)).margin(2e-5));

  GenerateRequest request;
  request.tokens = {3, 0};
  request.max_new_tokens = 20;
  request.key = {9, kernels::Purpose::train, 4, 0};
  request.record = RecordKind::full;
  const TokenRecords records = generate(weights, {1, 4, 64}, {request}).at(0).records;
  const auto tokens = whole(request, records);
  for (size_t t = 0; t < records.size(); ++t) {
    const double* next = probability[tokens[t + 1]];
    CHECK(records.log_q[t] == Approx(std::log(next[records.tokens[t]])).margin(2e-5));
    for (int v = 0; v < 4; ++v) CHECK(records.id_log_q[4 * t + v] == Approx(std::log(next[v])).margin(2e-5));
  }
}

TEST_CASE("top-k and full records are the whole distribution", "[engine]") {
  const Model model = make_model(odd_untied(), 74);
  const int64_t vocabulary = model.config.vocabulary;
  const auto weights = sampler_weights(model, plain_profile("bf16"));
  const int64_t k = GENERATE(1, 5, 36, 37, 500);
  const double temperature = GENERATE(1.0, 0.5);
  GenerateRequest request = make_request(1, 6, 25, vocabulary, {temperature, 1.0, 0});
  request.record = RecordKind::full;
  const TokenRecords full = generate(weights, {1, 16, 64}, {request}).at(1).records;
  request.record = RecordKind::top_k;
  request.record_top_k = k;
  const TokenRecords head = generate(weights, {1, 16, 64}, {request}).at(1).records;
  CHECK(full.consistent(vocabulary));
  CHECK(head.consistent(vocabulary));
  CHECK(head.tokens == full.tokens);
  CHECK(head.log_q == full.log_q);
  const auto listed = std::min(k, vocabulary);
  for (size_t t = 0; t < full.size(); ++t) {
    REQUIRE(full.offsets[t + 1] - full.offsets[t] == vocabulary);
    REQUIRE(head.offsets[t + 1] - head.offsets[t] == listed);
    const float* all = full.id_log_q.data() + full.offsets[t];
    CHECK(std::bit_cast<uint32_t>(all[full.tokens[t]]) == std::bit_cast<uint32_t>(full.log_q[t]));
    CHECK(full.log_tail[t] == -std::numeric_limits<float>::infinity());
    double mass = std::exp(static_cast<double>(head.log_tail[t])), least = 1.0, outside = 0.0;
    std::vector<bool> in_head(static_cast<size_t>(vocabulary));
    for (int64_t i = head.offsets[t]; i < head.offsets[t + 1]; ++i) {
      CHECK(head.id_log_q[i] == all[head.ids[i]]);
      in_head[static_cast<size_t>(head.ids[i])] = true;
      mass += std::exp(static_cast<double>(head.id_log_q[i]));
      least = std::min(least, static_cast<double>(head.id_log_q[i]));
    }
    for (int32_t v = 0; v < vocabulary; ++v) {
      if (in_head[static_cast<size_t>(v)]) continue;
      CHECK(all[v] <= least);
      outside += std::exp(static_cast<double>(all[v]));
    }
    CHECK(mass == Approx(1.0).margin(1e-6));  // float log-probabilities: 37 entries of relative error 2^-24 each
    if (listed == vocabulary) {
      CHECK(head.log_tail[t] == -std::numeric_limits<float>::infinity());
    } else {
      CHECK(head.log_tail[t] == Approx(std::log(outside)).margin(1e-5));
    }
  }
}

TEST_CASE("a truncated draw records its candidates whatever is asked for", "[engine]") {
  const Model model = make_model(odd_untied(), 75);
  const auto weights = sampler_weights(model, plain_profile("bf16"));
  const auto kind = GENERATE(RecordKind::sampled, RecordKind::candidates, RecordKind::top_k, RecordKind::full);
  const kernels::SamplingRule rule =
      GENERATE(kernels::SamplingRule{1.0, 0.7, 0}, kernels::SamplingRule{0.8, 1.0, 4},
               kernels::SamplingRule{1.0, 0.9999999, 0}, kernels::SamplingRule{1, 1, 99});
  GenerateRequest request = make_request(1, 6, 25, model.config.vocabulary, rule);
  request.record = kind;
  request.record_top_k = 2;
  const TokenRecords records = generate(weights, {1, 16, 64}, {request}).at(1).records;
  REQUIRE(records.consistent(model.config.vocabulary));
  for (size_t t = 0; t < records.size(); ++t) {
    CHECK(records.log_tail[t] == -std::numeric_limits<float>::infinity());
    REQUIRE(records.offsets[t + 1] > records.offsets[t]);
    double mass = 0.0;
    bool found = false;
    for (int64_t i = records.offsets[t]; i < records.offsets[t + 1]; ++i) {
      mass += std::exp(static_cast<double>(records.id_log_q[i]));
      if (records.ids[i] != records.tokens[t]) continue;
      found = true;
      CHECK(std::bit_cast<uint32_t>(records.id_log_q[i]) == std::bit_cast<uint32_t>(records.log_q[t]));
    }
    CHECK(found);
    CHECK(mass == Approx(1.0).margin(1e-6));
    if (rule.top_k == 4) CHECK(records.offsets[t + 1] - records.offsets[t] == 4);
  }
}

TEST_CASE("sampled records list nothing, candidates without truncation list the support", "[engine]") {
  const Model model = make_model(grouped_tied(), 76);
  const auto weights = sampler_weights(model, plain_profile("bf16"));
  GenerateRequest request = make_request(1, 3, 6, model.config.vocabulary, {});
  const TokenRecords bare = generate(weights, {1, 16, 64}, {request}).at(1).records;
  CHECK(bare.ids.empty());
  CHECK(bare.offsets == std::vector<int64_t>(7, 0));
  CHECK(bare.log_tail == std::vector<float>(6, 0.0f));
  request.record = RecordKind::candidates;
  CHECK(generate(weights, {1, 16, 64}, {request}).at(1).records.ids.size() == 66);
}

TEST_CASE("only ids below the request's vocabulary are drawn", "[engine]") {
  const Model model = make_model(odd_untied(), 77);
  const auto weights = sampler_weights(model, plain_profile("bf16"));
  GenerateRequest request = make_request(1, 5, 60, model.config.vocabulary, {1.5, 1.0, 0});
  request.vocabulary = GENERATE(1, 7);
  request.record = RecordKind::full;
  const TokenRecords records = generate(weights, {1, 16, 64}, {request}).at(1).records;
  REQUIRE(records.size() == 60);
  CHECK(records.consistent(*request.vocabulary));
  CHECK(static_cast<int64_t>(records.ids.size()) == 60 * *request.vocabulary);
  if (*request.vocabulary == 1) CHECK(records.log_q == std::vector<float>(60, 0.0f));
}

TEST_CASE("greedy takes the first largest logit whatever the key", "[engine]") {
  const Model model = make_model(odd_untied(), 78);
  const auto weights = sampler_weights(model, plain_profile("bf16"));
  GenerateRequest request = make_request(1, 5, 20, model.config.vocabulary, {0.0, 1.0, 0});
  request.record = RecordKind::full;
  const TokenRecords records = generate(weights, {1, 16, 64}, {request}).at(1).records;
  request.key.session += 1;
  CHECK(generate(weights, {1, 16, 64}, {request}).at(1).records == records);
  for (size_t t = 0; t < records.size(); ++t) {
    const auto first = records.id_log_q.begin() + records.offsets[t];
    CHECK(std::max_element(first, first + model.config.vocabulary) - first == records.tokens[t]);
  }
  Engine engine(weights, {1, 16, 64});
  CHECK(drawn_bits(engine.score({whole(request, records)}, 1.0)[0], 5) == bits(records.log_q));
}

TEST_CASE("ties in a record go to the lower id, and logits without a distribution are refused", "[engine]") {
  GenerateRequest request;
  request.record = RecordKind::top_k;
  request.record_top_k = 2;
  const std::vector<float> tied{0.0f, 1.0f, 1.0f, 2.0f, 1.0f};
  std::vector<float> scaled;
  TokenRecords records;
  draw_and_record(tied, request, 0, 8, scaled, records);
  CHECK(records.ids == std::vector<int32_t>{1, 3});
  CHECK(records.versions == std::vector<uint64_t>{8});
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), kInfinity}) {
    const std::vector<float> logits{0.0f, bad, 1.0f};
    CHECK_THROWS_AS(draw_and_record(logits, request, 0, 8, scaled, records), std::runtime_error);
  }
  const std::vector<float> impossible{-kInfinity, -kInfinity};
  CHECK_THROWS_AS(draw_and_record(impossible, request, 0, 8, scaled, records), std::runtime_error);
  CHECK(records.size() == 1);
}

}  // namespace
}  // namespace motley
