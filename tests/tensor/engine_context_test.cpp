// What the engine's contexts keep from one step to the next.
#include "tensor/engine_context.h"

#include <catch2/catch.hpp>

#include "tests/tensor/engine_fixture.h"

namespace motley {
namespace {

using namespace test;

TEST_CASE("a context takes over the row buffers of the one before, but not those of a large pass", "[engine]") {
  const Model model = make_model(odd_untied(), 83);
  const auto weights = sampler_weights(model, *kernels::find_profile("h100-fp8"));
  const TransformerConfig& config = model.config;
  const RopeTable table(config.max_positions, config.head_dim, config.rope_theta, DType::f32);
  KvCache cache(config, weights->profile(), 16, 1);
  const auto project = [&](int64_t rows) {
    PassLists lists(weights->device());
    EngineContext context(*weights, cache, table, lists);
    context.project(Tensor::zeros({rows, config.width}, weights->profile().output), 0, Projection::q);
  };
  const auto floats = [&](int64_t rows) { return rows * config.width * static_cast<int64_t>(sizeof(float)); };
  const int64_t large = 1 + EngineContext::kMostKeptBytes / floats(1);
  project(large);  // so that nothing is kept of other tests' contexts
  project(64);
  const int64_t kept = EngineContext::kept_bytes();
  CHECK(kept >= floats(64));
  project(3);  // in the same memory
  CHECK(EngineContext::kept_bytes() == kept);
  project(large);
  CHECK(EngineContext::kept_bytes() == 0);
  project(64);
  CHECK(EngineContext::kept_bytes() == kept);
}

}  // namespace
}  // namespace motley
