// The engine at sizes where work is really split between threads, and after weights have changed.
#include <catch2/catch.hpp>

#include "kernels/parallel.h"
#include "tests/tensor/engine_fixture.h"

namespace motley {
namespace {

using namespace test;

kernels::NumericProfile preset(const std::string& name) {
  return name == "trainer" ? plain_profile("bf16") : *kernels::find_profile(name);
}

TEST_CASE("one, two or four threads, alone or eight together: the same bits", "[engine]") {
  const auto profile = preset(GENERATE("trainer", "h100-fp8", "b200-nvfp4"));
  TransformerConfig config;
  config.vocabulary = 300, config.layers = 2, config.width = 128, config.heads = 4, config.kv_heads = 2;
  config.max_positions = 128;
  const Model model = make_model(config, 81);
  const auto weights = sampler_weights(model, profile);
  std::vector<GenerateRequest> requests;
  for (uint64_t id = 0; id < 8; ++id) {
    requests.push_back(make_request(id, 5 + 9 * static_cast<int64_t>(id), 20, config.vocabulary, {0.8, 0.9, 0}));
  }
  const auto expected = generate(weights, {8, 16, 4096}, requests);
  for (const int threads : {1, 2, 4}) {
    kernels::set_compute_threads(threads);
    CAPTURE(profile.name, threads);
    CHECK((generate(weights, {8, 16, 4096}, requests) == expected));
    for (const GenerateRequest& request : requests)
      CHECK((generate(weights, {1, 16, 4096}, {request}).at(request.id) == expected.at(request.id)));
    kernels::set_compute_threads(1);
  }
}

TEST_CASE("after a swap a new request is answered as by a fresh engine", "[engine]") {
  const auto profile = preset(GENERATE("trainer", "h100-fp8", "b200-nvfp4", "a100-bf16"));
  const TransformerConfig config = GENERATE(grouped_tied(), odd_untied());
  CAPTURE(profile.name, config.vocabulary);
  const Model before = make_model(config, 82), after = make_model(config, 83);
  const auto requests = seven_requests(10, config.vocabulary, {0.8, 0.9, 0});
  Engine engine(sampler_weights(before, profile, 1), {7, 4, 4096});
  for (const GenerateRequest& request : requests) engine.submit(request);
  for (int i = 0; i < 4; ++i) engine.step();
  for (const GenerateRequest& request : requests) engine.cancel(request.id);
  const auto weights = sampler_weights(after, profile, 2);
  engine.set_weights(weights);
  for (const GenerateRequest& request : requests) engine.submit(request);
  CHECK((drain(engine) == generate(weights, {7, 4, 4096}, requests)));
}

}  // namespace
}  // namespace motley
