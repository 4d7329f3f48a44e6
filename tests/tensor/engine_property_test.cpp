// The engine from end to end: what a session records never depends on who else is served.
#include "kernels/parallel.h"
#include "tests/kernels/property.h"
#include "tests/tensor/engine_fixture.h"

namespace motley {
namespace {

using namespace test;
using kernels::chance;
using kernels::pick;
using kernels::spread;

/// The last id's embedding is NaN; the head is not tied to it. A neighbour that holds this token fails.
Model random_model(kernels::Values& draw) {
  Model model = make_model(pick(draw, std::vector<TransformerConfig>{odd_untied(),
                                                                     [] {
                                                                       TransformerConfig c = even_normed();
                                                                       c.tied_head = false;
                                                                       return c;
                                                                     }()}),
                           static_cast<uint64_t>(draw.below(1000)));
  Tensor& embedding = model.parameters.at("model.embed_tokens.weight");
  auto values = embedding.span<float>();
  std::fill(values.end() - model.config.width, values.end(), std::numeric_limits<float>::quiet_NaN());
  return model;
}

/// Sessions of random lengths; some begin as another does, some are poisoned.
std::vector<GenerateRequest> random_requests(kernels::Values& draw, const TransformerConfig& config) {
  std::vector<GenerateRequest> requests;
  const int64_t alphabet = config.vocabulary - 1;
  for (uint64_t id = 1; id <= 7; ++id) {
    GenerateRequest request;
    request.id = id;
    if (!requests.empty() && chance(draw, 3)) request.tokens = pick(draw, requests).tokens;
    for (int64_t n = spread(draw, 1, 60); n > 0; --n)
      request.tokens.push_back(static_cast<int32_t>(draw.below(alphabet)));
    request.max_new_tokens = spread(draw, 1, 12);
    request.tokens.resize(std::min<size_t>(request.tokens.size(), 100));
    if (chance(draw, 6)) request.tokens.back() = static_cast<int32_t>(alphabet);
    request.vocabulary = alphabet;  // the poison is given, never drawn
    request.rule.temperature = pick(draw, std::vector<double>{1.0, 0.7});
    request.rule.top_p = pick(draw, std::vector<double>{1.0, 0.9});
    request.record = pick(draw, std::vector<RecordKind>{RecordKind::sampled, RecordKind::top_k});
    if (request.rule.top_p < 1.0) request.record = RecordKind::candidates;
    request.record_top_k = 5;
    request.key = {static_cast<uint64_t>(draw.below(1000)), kernels::Purpose::train, id, 0};
    requests.push_back(request);
  }
  return requests;
}

EngineLimits random_limits(kernels::Values& draw) {
  EngineLimits limits;
  limits.max_sequences = spread(draw, 1, 7);
  limits.page_size = spread(draw, 1, 40);
  limits.max_batch_rows = spread(draw, 1, 400);
  limits.max_prefill_rows = spread(draw, 1, 200);
  limits.max_cached_bytes = chance(draw, 2) ? 0 : int64_t{1} << 20;
  limits.share_prefixes = !chance(draw, 3);
  return limits;
}

/// The sessions come one after another while others run; some are cancelled on the way and start again.
std::map<uint64_t, Finished> serve(kernels::Values& draw, Engine& engine, std::vector<GenerateRequest> requests) {
  std::map<uint64_t, Finished> finished;
  while (!requests.empty()) {
    const auto next = requests.begin() + draw.below(static_cast<int64_t>(requests.size()));
    engine.submit(*next);
    if (chance(draw, 4)) {
      for (int64_t steps = draw.below(4); steps > 0; --steps) collect(engine.step(), finished);
      if (engine.cancel(next->id)) {  // and again, from its beginning
        finished.erase(next->id);
        engine.submit(*next);
      }
    }
    requests.erase(next);
    for (int64_t steps = draw.below(3); steps > 0; --steps) collect(engine.step(), finished);
  }
  while (!engine.idle()) collect(engine.step(), finished);
  engine.check_pages();
  return finished;
}

kernels::NumericProfile random_profile(kernels::Values& draw) {
  return chance(draw, 4) ? plain_profile("fp32") : pick(draw, kernels::profiles());
}

}  // namespace

TEST_CASE("what a session records never depends on who else is served", "[property]") {
  kernels::for_random_cases(12, [](kernels::Values& draw) {
    const Model model = random_model(draw);
    const kernels::NumericProfile profile = random_profile(draw);
    INFO(describe(profile));
    const auto weights = sampler_weights(model, profile);
    const auto requests = random_requests(draw, model.config);
    std::map<uint64_t, Finished> alone;
    for (const GenerateRequest& request : requests)
      alone.merge(generate(weights, {.max_sequences = 1, .share_prefixes = false}, {request}));
    for (int trial = 0; trial < 2; ++trial) {
      const auto threads = static_cast<int>(1 + draw.below(3));
      const auto set = static_cast<int>(draw.below(kernels::cpu::instruction_sets()));
      const kernels::Conditions conditions(threads, set);
      Engine engine(weights, random_limits(draw));
      const auto together = serve(draw, engine, requests);
      for (const GenerateRequest& request : requests) {
        INFO("session " << request.id << ", threads " << threads << ", instruction set " << set);
        REQUIRE(together.count(request.id) == 1);
        REQUIRE(together.at(request.id) == alone.at(request.id));
      }
    }
  });
}

TEST_CASE("the score of a sequence never depends on the others", "[property]") {
  kernels::for_random_cases(8, [](kernels::Values& draw) {
    const Model model = random_model(draw);
    const kernels::NumericProfile profile = random_profile(draw);
    INFO(describe(profile));
    const auto weights = sampler_weights(model, profile);
    const double temperature = pick(draw, std::vector<double>{1.0, 0.7});
    std::vector<std::vector<int32_t>> pool;
    for (const GenerateRequest& request : random_requests(draw, model.config)) pool.push_back(request.tokens);
    kernels::check_rows(draw, static_cast<int64_t>(pool.size()), 10, [&](std::span<const int64_t> chosen) {
      Engine engine(weights, random_limits(draw));
      std::vector<std::vector<int32_t>> sequences;
      for (const int64_t s : chosen) sequences.push_back(pool[static_cast<size_t>(s)]);
      kernels::RowResults results;
      for (const auto& score : engine.score(sequences, temperature)) results.emplace_back(score.begin(), score.end());
      return results;
    });
  });
}

}  // namespace motley
