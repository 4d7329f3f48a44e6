// Weights as bytes, and back: what one process sends and another computes with.
#include <catch2/catch.hpp>

#include "tests/tensor/engine_fixture.h"

namespace motley {
namespace {

using namespace test;

std::vector<std::byte> image_of(const SamplerWeights& weights) {
  std::vector<std::byte> image(image_bytes(weight_parts(weights.config(), weights.profile())), std::byte{0xa5});
  weights.write_image(image);
  return image;
}

std::shared_ptr<const SamplerWeights> from_image(const SamplerWeights& like, const std::vector<std::byte>& image,
                                                 const Device& device = {}) {
  return std::make_shared<SamplerWeights>(like.config(), like.profile(), like.version(), device, image);
}

std::map<uint64_t, Finished> answers(const std::shared_ptr<const SamplerWeights>& weights) {
  return generate(weights, {4, 16, 64}, seven_requests(4, weights->config().vocabulary, {}));
}

}  // namespace

TEST_CASE("weights from an image are the sender's, for every profile", "[weights]") {
  for (const TransformerConfig& config : {grouped_tied(), odd_untied()}) {
    const Model model = make_model(config, 90);
    for (const kernels::NumericProfile& profile : kernels::profiles()) {
      if (profile.output == DType::f64) continue;
      CAPTURE(profile.name, config.tied_head);
      const auto sent = sampler_weights(model, profile, 7);
      const std::vector<std::byte> image = image_of(*sent);
      const auto received = from_image(*sent, image);
      REQUIRE(received->fingerprints() == sent->fingerprints());
      CHECK(received->digest() == sent->digest());
      CHECK(received->version() == 7);
      CHECK(image_of(*received) == image);
      CHECK(answers(received) == answers(sent));
    }
  }
}

TEST_CASE("an image is the same whatever device its weights are on", "[weights]") {
  const Model model = make_model(smallest(), 91);
  for (const auto* name : {"bf16", "h100-fp8", "b200-nvfp4"}) {
    CAPTURE(name);
    const kernels::NumericProfile& profile = *kernels::find_profile(name);
    const auto host = sampler_weights(model, profile);
    const std::vector<std::byte> image = image_of(*host);
    const Device emulated{kernels::DeviceKind::emulated};
    const auto there = sampler_weights(model, profile, 1, emulated);
    CHECK(image_of(*there) == image);
    const auto carried = from_image(*host, image, emulated);
    CHECK(carried->device() == emulated);
    CHECK(carried->fingerprints() == host->fingerprints());
    CHECK(image_of(*carried) == image);
  }
}

TEST_CASE("every byte of an image counts in the fingerprint of its tensor alone", "[weights]") {
  const Model model = make_model(smallest(), 92);
  for (const auto* name : {"fp32", "h100-fp8", "b200-nvfp4", "b200-mxfp8"}) {
    const kernels::NumericProfile* profile = kernels::find_profile(name);
    if (profile == nullptr) continue;
    const auto sent = sampler_weights(model, *profile);
    for (const WeightPart& part : weight_parts(sent->config(), *profile)) {
      for (const uint64_t at : {part.offset, part.offset + part.bytes / 2, part.offset + part.bytes - 1}) {
        CAPTURE(name, part.name, at);
        std::vector<std::byte> image = image_of(*sent);
        image[at] ^= std::byte{1};
        const auto received = from_image(*sent, image);
        for (const auto& [tensor, fingerprint] : received->fingerprints())
          CHECK((fingerprint != sent->fingerprints().at(tensor)) == (tensor == part.name));
      }
    }
  }
}

TEST_CASE("the parts of weights follow each other without a gap, in the order of the parameters", "[weights]") {
  const TransformerConfig config = odd_untied();
  for (const kernels::NumericProfile& profile : kernels::profiles()) {
    if (profile.output == DType::f64) continue;
    const std::vector<WeightPart> parts = weight_parts(config, profile);
    const auto layout = Parameters::layout(config);
    REQUIRE(parts.size() == layout.size());
    uint64_t end = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      CHECK(parts[i].name == layout[i].first);
      CHECK(parts[i].shape == layout[i].second);
      CHECK(parts[i].offset == end);
      end += parts[i].bytes;
    }
    CHECK(image_bytes(parts) == end);
  }
}

TEST_CASE("what is no image of these weights is refused", "[weights]") {
  const auto weights = sampler_weights(make_model(smallest(), 93), *kernels::find_profile("h100-fp8"));
  std::vector<std::byte> image = image_of(*weights);
  for (const int64_t more : {int64_t{-1}, int64_t{1}, -static_cast<int64_t>(image.size())}) {
    std::vector<std::byte> other = image;
    other.resize(static_cast<size_t>(static_cast<int64_t>(image.size()) + more));
    CHECK_THROWS_WITH(from_image(*weights, other), Catch::StartsWith("weights: an image of "));
    CHECK_THROWS_AS(weights->write_image(other), std::invalid_argument);
  }
  TransformerConfig huge = smallest();
  huge.vocabulary = huge.width = int64_t{1} << 31;
  CHECK_THROWS_WITH(weight_parts(huge, weights->profile()), Catch::Contains("larger than 2^48 bytes"));
}

}  // namespace motley
