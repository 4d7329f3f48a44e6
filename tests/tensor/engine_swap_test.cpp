// What becomes of running sequences when other weights take over.
#include <catch2/catch.hpp>

#include "tests/tensor/engine_fixture.h"

namespace motley {
namespace {

using namespace test;

constexpr int kBefore = 3, kAfter = 5;

struct Swapped {
  std::map<uint64_t, std::vector<int32_t>> context;  // what each sequence was when the weights changed
  std::map<uint64_t, Finished> after;                // what came then
  EngineStats before_swap, stats;
};

/// Steps of one version, a swap, and the rest of another.
Swapped swapped(const std::shared_ptr<const SamplerWeights>& old_weights,
                const std::shared_ptr<const SamplerWeights>& new_weights, const EngineLimits& limits,
                const std::vector<GenerateRequest>& requests) {
  Engine engine(old_weights, limits);
  Swapped result;
  std::map<uint64_t, Finished> before;
  for (const GenerateRequest& request : requests) engine.submit(request);
  for (int step = 0; step < kBefore; ++step) collect(engine.step(), before);
  for (const GenerateRequest& request : requests)
    result.context[request.id] = whole(request, before[request.id].records);
  result.before_swap = engine.stats();
  engine.set_weights(new_weights);
  engine.check_pages();
  while (!engine.idle()) {
    collect(engine.step(), result.after);
    engine.check_pages();
  }
  result.stats = engine.stats();
  return result;
}

/// The same requests as an engine that has only ever had these weights goes on with them.
std::map<uint64_t, Finished> fresh(const std::shared_ptr<const SamplerWeights>& weights, const EngineLimits& limits,
                                   std::vector<GenerateRequest> requests, const Swapped& swapped) {
  for (GenerateRequest& request : requests) {
    const std::vector<int32_t>& context = swapped.context.at(request.id);
    request.max_new_tokens -= static_cast<int64_t>(context.size() - request.tokens.size());
    request.tokens = context;
  }
  return generate(weights, limits, requests);
}

}  // namespace

TEST_CASE("recomputed after a swap, sequences go on as with a fresh sampler; kept, they do not", "[engine]") {
  for (const auto* name : {"bf16", "h100-fp8"}) {
    const kernels::NumericProfile& profile = *kernels::find_profile(name);
    const auto old_weights = sampler_weights(make_model(grouped_tied(), 71), profile, 10);
    const auto new_weights = sampler_weights(make_model(grouped_tied(), 72), profile, 11);
    const auto requests = seven_requests(kBefore + kAfter, grouped_tied().vocabulary, {1.0, 0.9, 0});
    for (const bool share : {true, false}) {
      for (const int64_t prefill : {int64_t{512}, int64_t{20}}) {  // 20: some are in the middle of their prompt
        CAPTURE(name, share, prefill);
        EngineLimits limits{7, 4, 4096, prefill};
        limits.share_prefixes = share;
        limits.kv_on_swap = KvOnSwap::recompute;
        const Swapped recomputed = swapped(old_weights, new_weights, limits, requests);
        CHECK(recomputed.after == fresh(new_weights, limits, requests, recomputed));
        CHECK(recomputed.stats.dropped_rows > 0);
        CHECK(recomputed.stats.kept_rows == 0);
        limits.kv_on_swap = KvOnSwap::keep;
        const Swapped kept = swapped(old_weights, new_weights, limits, requests);
        CHECK_FALSE(kept.after == fresh(new_weights, limits, requests, kept));
        CHECK(kept.stats.kept_rows == recomputed.stats.dropped_rows);
        CHECK(kept.stats.dropped_rows == 0);
        for (const auto& [id, finished] : recomputed.after)
          for (const uint64_t version : finished.records.versions) CHECK(version == 11);
      }
    }
  }
}

TEST_CASE("a prompt that several share is recomputed once after a swap", "[engine]") {
  const kernels::NumericProfile profile = plain_profile("bf16");
  const auto old_weights = sampler_weights(make_model(grouped_tied(), 73), profile, 1);
  const auto new_weights = sampler_weights(make_model(grouped_tied(), 74), profile, 2);
  std::vector<GenerateRequest> requests;
  for (uint64_t id = 1; id <= 4; ++id) {
    requests.push_back(make_request(id, 64, kBefore + kAfter, grouped_tied().vocabulary, {}));
    requests.back().tokens = requests.front().tokens;
  }
  EngineLimits limits{4, 16, 4096};
  limits.kv_on_swap = KvOnSwap::recompute;
  const Swapped result = swapped(old_weights, new_weights, limits, requests);
  CHECK(result.after == fresh(new_weights, limits, requests, result));
  const int64_t rows = result.stats.prefill_rows - result.before_swap.prefill_rows;
  CHECK(rows >= 64);
  CHECK(rows <= 64 + 3 * 16);  // not four times the prompt
}

TEST_CASE("the same weights under another version drop nothing", "[engine]") {
  const Model model = make_model(grouped_tied(), 75);
  EngineLimits limits{7, 4, 4096};
  limits.kv_on_swap = KvOnSwap::recompute;
  const auto requests = seven_requests(kBefore + kAfter, model.config.vocabulary, {});
  const Swapped result = swapped(sampler_weights(model, plain_profile("bf16"), 1),
                                 sampler_weights(model, plain_profile("bf16"), 2), limits, requests);
  CHECK(result.stats.dropped_rows + result.stats.kept_rows == 0);
}

}  // namespace motley
