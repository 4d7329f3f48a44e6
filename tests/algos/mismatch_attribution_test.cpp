// Where a mismatch comes from: nothing from equal profiles, all of it from the one operation that differs.
#include <catch2/catch.hpp>
#include <cmath>

#include "algos/mismatch/measure.h"
#include "tests/tensor/engine_fixture.h"

namespace motley::algos::mismatch {
namespace {

using namespace motley::test;
using kernels::Format;
using kernels::NumericProfile;
using kernels::Scaling;

const NumericProfile& preset(const std::string& name) { return *kernels::find_profile(name); }

Measurement measured(const TransformerConfig& config, const NumericProfile& sampler, const NumericProfile& trainer,
                     Detail detail) {
  const Model model = make_model(config, 81);
  std::vector<std::vector<int32_t>> prompts;
  for (const GenerateRequest& request : seven_requests(1, model.config.vocabulary, {}))
    prompts.push_back(request.tokens);
  Drawing drawing;
  drawing.responses = 14;
  drawing.length = 10;
  return measure(model.config, model.parameters, sampler, trainer, prompts, drawing, detail);
}

void check_all_from(const Measurement& measurement, Operation planted) {
  const Attribution& attribution = *measurement.by_operation;
  REQUIRE(attribution.whole > 0.0);
  CHECK(attribution.whole == measurement.summary.kl_qp.value);
  CHECK(attribution.interaction() == 0.0);
  for (const Contribution& row : attribution.units) {
    const bool here = row.name == operation_name(planted);
    CAPTURE(row.name);
    CHECK(row.differs == here);
    CHECK(row.alone == (here ? attribution.whole : 0.0));
    CHECK(row.added == (here ? attribution.whole : 0.0));
  }
}

}  // namespace

TEST_CASE("equal profiles differ in nothing, exactly", "[mismatch]") {
  for (const char* name : {"fp32", "bf16", "fp16", "h100-fp8", "b200-nvfp4", "h100-fp8-channel-accumulate14"}) {
    CAPTURE(name);
    const Measurement measurement = measured(even_normed(), preset(name), preset(name), Detail::layers);
    const Summary& s = measurement.summary;
    CHECK(measurement.recorded_differs == 0);
    for (const double value :
         {s.kl_qp.value, s.kl_qp.error, s.kl_pq.value, s.variation.value, s.k1.value, s.k3.value, s.sequence_kl.value,
          s.sequence_k1.value, s.outside, s.difference.mean, s.difference.least, s.difference.largest, s.running.value,
          s.running.low, s.running.high, s.gap_by_position.value, s.kl_by_position.value}) {
      CHECK(value == 0.0);
    }
    CHECK(s.same_top1 == 1.0);
    CHECK(s.largest_ratio == 1.0);
    for (const TokenGap& gap : measurement.gaps) {
      CHECK(gap.finite);
      CHECK((gap.kl_qp == 0.0 && gap.kl_pq == 0.0 && gap.gap == 0.0 && gap.log_p == gap.log_q));
    }
    for (const auto& attribution : {measurement.by_operation, measurement.by_layer}) {
      CHECK(attribution->whole == 0.0);
      CHECK(attribution->interaction() == 0.0);
      for (const Contribution& row : attribution->units) {
        CHECK_FALSE(row.differs);
        CHECK((row.alone == 0.0 && row.cumulative == 0.0 && row.added == 0.0));
      }
    }
    for (const auto& row : measurement.pairs)
      for (const double value : row) CHECK(value == 0.0);
  }
}

TEST_CASE("one planted difference explains all of the mismatch", "[mismatch]") {
  const NumericProfile& bf16 = preset("bf16");
  NumericProfile other = bf16;
  SECTION("the KV cache's format") {
    other.kv_cache = Format::e4m3;
    check_all_from(measured(grouped_tied(), other, bf16, Detail::classes), Operation::kv_cache);
  }
  SECTION("the KV cache's scale") {
    NumericProfile scaled = bf16;
    other.kv_cache = scaled.kv_cache = Format::e4m3;
    scaled.kv_scale = 0.3;
    check_all_from(measured(grouped_tied(), other, scaled, Detail::classes), Operation::kv_cache);
  }
  SECTION("the order of summation") {
    NumericProfile tiled = preset("fp32");  // bf16 results hide most of it
    tiled.k_tile = 8;
    check_all_from(measured(grouped_tied(), tiled, preset("fp32"), Detail::classes), Operation::reduction_order);
  }
  SECTION("the accumulator") {
    check_all_from(measured(grouped_tied(), preset("h100-fp8-accumulate14"), preset("h100-fp8"), Detail::classes),
                   Operation::accumulation);
  }
}

TEST_CASE("a difference of the projections' weights alone lies in the seven projections", "[mismatch]") {
  NumericProfile other = preset("bf16");
  other.weight = {Format::e4m3, Scaling::channel};
  const Measurement measurement = measured(odd_untied(), other, preset("bf16"), Detail::layers);
  const Attribution& attribution = *measurement.by_operation;
  double added = 0.0;
  for (size_t i = 0; i < attribution.units.size(); ++i) {
    CHECK(attribution.units[i].differs == is_projection(operations()[i]));
    if (attribution.units[i].differs) CHECK(attribution.units[i].alone > 0.0);
    added += attribution.units[i].added;
  }
  CHECK(added == Approx(attribution.whole));
  // One layer: each pair of operation and layer is the operation, and the layer is everything.
  for (size_t i = 0; i < attribution.units.size(); ++i) CHECK(measurement.pairs[i][0] == attribution.units[i].alone);
  REQUIRE(measurement.by_layer->units.size() == 3);
  CHECK(measurement.by_layer->units[1].alone == attribution.whole);
  CHECK(measurement.by_layer->interaction() == 0.0);
}

TEST_CASE("a difference that only one layer shows is found in that layer", "[mismatch]") {
  // Weights that every format holds exactly, but in the last layer.
  Model model = make_model(even_normed(), 82);
  for (const std::string& name : model.parameters.names()) {
    if (name.find("layers.2.") != std::string::npos || name.find("proj") == std::string::npos) continue;
    for (float& value : model.parameters.at(name).span<float>()) value = value > 0 ? 0.125f : -0.125f;
  }
  NumericProfile other = preset("bf16");
  other.weight = {Format::e4m3, Scaling::none};
  Drawing drawing;
  drawing.responses = 6;
  drawing.length = 8;
  const Measurement measurement =
      measure(model.config, model.parameters, other, preset("bf16"), {{1, 2}, {3}}, drawing, Detail::layers);
  const std::vector<Contribution>& layers = measurement.by_layer->units;
  REQUIRE(layers.size() == 5);
  CHECK(layers[1].alone == 0.0);
  CHECK(layers[2].alone == 0.0);
  CHECK(layers[3].alone == measurement.by_layer->whole);
  CHECK(layers[3].alone > 0.0);
  CHECK(layers[3].name == "layer 2");
}

TEST_CASE("engines' records agree with the full pass, and alone, added and interaction with the whole", "[mismatch]") {
  for (const auto& [sampler, trainer] : std::vector<std::pair<const char*, const char*>>{
           {"bf16", "fp32"}, {"fp16", "fp32"}, {"fp8", "fp32"}, {"b200-nvfp4-w4a4", "bf16"}, {"fp32", "nvfp4"}}) {
    CAPTURE(sampler, trainer);
    const Measurement measurement = measured(grouped_tied(), preset(sampler), preset(trainer), Detail::layers);
    CHECK(measurement.recorded_differs == 0);
    CHECK(measurement.summary.kl_qp.value > 0.0);
    for (const auto& attribution : {measurement.by_operation, measurement.by_layer}) {
      double alone = 0.0, added = 0.0;
      for (const Contribution& row : attribution->units) alone += row.alone, added += row.added;
      CHECK(attribution->whole == measurement.summary.kl_qp.value);
      CHECK(added == Approx(attribution->whole));
      CHECK(alone + attribution->interaction() == Approx(attribution->whole));
    }
  }
}

TEST_CASE("fp16 engines are far nearer to fp32 than bf16 engines", "[mismatch]") {
  const double bf16 = measured(grouped_tied(), preset("bf16"), preset("fp32"), Detail::off).summary.kl_qp.value;
  const double fp16 = measured(grouped_tied(), preset("fp16"), preset("fp32"), Detail::off).summary.kl_qp.value;
  CHECK(bf16 > 30.0 * fp16);  // a rounding 8 times finer gives 64 times less, to first order
  CHECK(bf16 < 130.0 * fp16);
}

}  // namespace motley::algos::mismatch
