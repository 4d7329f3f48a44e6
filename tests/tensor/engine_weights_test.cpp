// The weights that an engine holds: what is quantized together, what is shared, what is a copy.
#include <catch2/catch.hpp>

#include "tests/tensor/engine_fixture.h"

namespace motley {
namespace {

using namespace test;

TEST_CASE("fingerprints name every tensor and change with it alone", "[engine]") {
  const auto* name = GENERATE("b200-nvfp4", "h100-fp8", "a100-bf16");
  const kernels::NumericProfile* profile = kernels::find_profile(name);
  REQUIRE(profile != nullptr);
  Model model = make_model(odd_untied(), 79);
  const auto before = sampler_weights(model, *profile)->fingerprints();
  CHECK(before.size() == model.parameters.names().size());
  CHECK(sampler_weights(model, *profile, 2)->fingerprints() == before);
  for (const std::string& changed : {std::string("model.norm.weight"), projection_name(0, Projection::o)}) {
    Model copy{model.config, model.parameters.clone()};
    copy.parameters.at(changed).data<float>()[5] += 1.0f;
    const auto after = sampler_weights(copy, *profile)->fingerprints();
    for (const auto& [tensor, fingerprint] : after) {
      CHECK((fingerprint != before.at(tensor)) == (tensor == changed));
    }
  }
}

TEST_CASE("matrices that are served fused share their tensor scale", "[engine]") {
  const Model model = make_model(odd_untied(), 81);
  Model copy{model.config, model.parameters.clone()};
  copy.parameters.at(projection_name(0, Projection::q)).data<float>()[5] = 100.0f;
  copy.parameters.at(projection_name(0, Projection::up)).data<float>()[5] = 100.0f;
  const auto changed = [&](const char* name, Projection projection) {
    const kernels::NumericProfile& profile = *kernels::find_profile(name);
    const std::string tensor = projection_name(0, projection);
    return sampler_weights(copy, profile)->fingerprints().at(tensor) !=
           sampler_weights(model, profile)->fingerprints().at(tensor);
  };
  for (const Projection p : {Projection::q, Projection::k, Projection::v, Projection::gate, Projection::up}) {
    CHECK(changed("b200-nvfp4", p));
    CHECK(changed("h100-fp8", p) == (p == Projection::q || p == Projection::up));
  }
  CHECK_FALSE(changed("b200-nvfp4", Projection::o));
  CHECK_FALSE(changed("b200-nvfp4", Projection::down));
}

TEST_CASE("a tied head is the embedding itself, and what is not quantized has the output type", "[engine]") {
  const auto tied = sampler_weights(make_model(grouped_tied(), 82), *kernels::find_profile("h100-fp8"), 7);
  CHECK(tied->version() == 7);
  CHECK(tied->head_weight().raw() == tied->parameter("model.embed_tokens.weight").raw());
  CHECK(tied->head_weight().dtype() == DType::bf16);
  CHECK(tied->parameter("model.norm.weight").dtype() == DType::bf16);
  CHECK_THROWS_AS(tied->parameter("lm_head.weight"), ContractError);
  const auto untied = sampler_weights(make_model(odd_untied(), 82), plain_profile("fp16"));
  CHECK(untied->head_weight().raw() == untied->parameter("lm_head.weight").raw());
  kernels::NumericProfile wide = plain_profile("fp32");
  wide.output = DType::f64;
  CHECK_THROWS_AS(sampler_weights(make_model(grouped_tied(), 82), wide), ContractError);
}

TEST_CASE("weights are a copy of the masters", "[engine]") {
  for (const auto* name : {"fp32", "bf16"}) {
    Model model = make_model(grouped_tied(), 80);
    const auto weights = sampler_weights(model, plain_profile(name));
    const GenerateRequest request = make_request(1, 5, 10, model.config.vocabulary, {});
    const auto before = generate(weights, {1, 16, 64}, {request});
    for (const std::string& tensor : model.parameters.names()) {
      for (float& value : model.parameters.at(tensor).span<float>()) value = 0.5f;
    }
    CHECK(generate(weights, {1, 16, 64}, {request}) == before);
  }
}

}  // namespace
}  // namespace motley
